# SPDX-License-Identifier: Apache-2.0
"""Complete screens, and how keys change the state of the live view, without a terminal."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from fake_attribution import attribution, query_row, screen, snapshot, typical
from qjoule.model.call_outcomes import Waits
from qjoule.model.result import PARTS, Attribution, Row
from qjoule.reporters import format as fmt
from qjoule.reporters.live_frame import cut, wrap
from qjoule.reporters.live_state import (
    HISTORY,
    HISTORY_ROWS,
    Effect,
    ViewState,
    row_key,
)
from qjoule.shapes.shape import OtherId
from qjoule.snapshots import Snapshot


def showing(table: Attribution) -> ViewState:
    state = ViewState(title="replay x")
    state.accept(Snapshot(table, table, 12.0))
    return state


def power_figures(lines: list[str]) -> list[Decimal]:
    """The contents of the power column; the total is last."""
    top = next(i for i, line in enumerate(lines) if "QUERY" in line)
    heading = re.search(r" [nµmkM]?W ", lines[top])
    assert heading
    matches = (re.search(r"-?\d+\.?\d*$", line[: heading.end() - 1]) for line in lines[top + 1 :])
    return [Decimal(match.group()) for match in matches if match]


@given(
    st.lists(st.integers(0, 10**13), max_size=40),
    st.lists(st.integers(0, 10**13), min_size=6, max_size=6),
    st.floats(0.1, 1e5),
    st.sampled_from([(80, 24), (60, 20), (200, 50)]),
)
def test_the_screen_adds_up(
    energies: list[int], fixed: list[int], duration_s: float, size: tuple[int, int]
) -> None:
    rows = tuple(query_row(energy, f"q{index}") for index, energy in enumerate(energies))
    parts = dict(zip(PARTS[1:], fixed, strict=True))
    *figures, total = power_figures(
        screen(showing(attribution(rows, parts, duration_s=duration_s)), *size)
    )
    assert sum(figures) == total
    assert len(figures) == min(len(rows), size[1] - 15) + 7


#: Three quarters of them lock, the others run.
WAITS = Waits(8 * 10**9, 0, 6 * 10**9, 0, 0, 0, 0)
SIZES = [(20, 5), (60, 16), (80, 24), (300, 100)]
HOSTILE = ("\x1b[2J\x1b]0;x\x07", "[red]x[/red]", "a\nb\x00\x9b", "表" * 200, "")


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("mode", ["", "enter", "h", "/", "w"])
def test_every_screen_fits_and_is_safe(width: int, height: int, mode: str) -> None:
    for shape in HOSTILE:
        names: dict[str, Any] = {"server": shape, "attach_mode": shape, "flags": (shape,)}
        row = query_row(10**9, shape, waits=WAITS, **names)
        state = showing(attribution((row, query_row(5)), {"idle": 10**9}, loss={"X": 3}))
        state.press(mode, mode if len(mode) == 1 else None)
        text = "\n".join(screen(state, width, height))
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)
    screen(showing(attribution((query_row(0),), {}, grade="none")), width, height)


def test_the_header_tells_grade_losses_coverage_and_state() -> None:
    state = showing(typical(grade="estimated", loss={"PUMP": 1234}, unattributed_windows=2))
    state.press("space", " ")
    state.accept(snapshot())
    state.ended = True
    text = "\n".join(screen(state, 200, 24)[:4])
    for part in (
        *("package", "estimated", "idle separate", "coverage 98.2 %", "2 windows without energy"),
        *("lost: 1,234 records read too late", "tracer 0.3 % CPU, 0.1 % E"),
        *("mariadb:3306 symbol", "PAUSED · END OF TRACE"),
    ):
        assert part in text


@given(st.text(), st.text(st.characters(exclude_categories=["C", "M", "Z"])), st.integers(2, 100))
def test_no_text_exceeds_its_width_and_wrapping_loses_nothing(
    text: str, word: str, width: int
) -> None:
    assert cell_len(cut(text, width)) <= width
    pieces = wrap(word, width)
    assert "".join(pieces) == word
    assert all(cell_len(piece) <= width for piece in pieces)


def test_detail_has_the_whole_text_both_spans_and_ids_of_other_tools() -> None:
    long = "SELECT " + ", ".join(f"column_{n}" for n in range(60))
    ids = OtherId("tool_id", "4711", "tool 1"), OtherId("other_id", None, "tool 2", "too long")
    counts: dict[str, Any] = {
        "cycles": 1e9,
        "instructions": 2e9,
        "energy_by_domain_nj": {"dram": 5},
    }
    table = attribution((query_row(10**9, long, ids=ids, **counts),), {})
    state = showing(table)
    state.press("enter", None)
    ids_shown = " ".join(" ".join(screen(state, 80, 60)).split())
    assert "tool_id · 4711 (tool 1)" in ids_shown
    assert "none: too long (tool 2)" in ids_shown
    state.accept(Snapshot(attribution((), {"idle": 5}), table, 2.0))
    text = "\n".join(screen(state, 80, 60))
    assert "column_59" in text
    assert "energy, dram" in text
    assert re.search(rf"calls +{fmt.UNKNOWN} +10", text), "no calls known in the last interval"
    assert re.search(r"IPC .* 2\.00", text)


def test_w_shows_what_the_latency_consists_of_and_back() -> None:
    locked = query_row(3 * 10**9, "UPDATE", waits=WAITS)
    slept = query_row(2 * 10**9, "SLEEP", waits=Waits(1000, 1, 0, 0, 0, 900, 0))
    state = showing(attribution((locked, slept, query_row(10**9, "OLD")), {"idle": 10**9}))
    usual = screen(state, 80, 24)
    state.press("w", "w")
    lines = screen(state, 80, 24)
    assert "waits not recorded for 1 of 3 rows" in lines[3]
    assert lines[4].endswith("ON CPU    RUN Q     LOCK    SLEEP  QUERY")
    rows = {line.split()[-1]: line for line in lines if line.endswith(("UPDATE", "SLEEP", "OLD"))}
    assert re.search(r" 25\.0 % +75\.0 % +UPDATE$", rows["UPDATE"])
    assert re.search(r" 9\.9 % +0\.1 % +90\.0 %  SLEEP$", rows["SLEEP"])
    assert re.search(rf"( +{fmt.UNKNOWN}){{4}}  OLD$", rows["OLD"])
    assert sum(power_figures(lines)[:-1]) == power_figures(lines)[-1]
    assert screen(state, 40, 24)[4].split()[1:] == ["LOCK", "QUERY"], "the largest part"
    state.press("w", "w")
    assert screen(state, 80, 24) == usual


def test_what_helpers_waited_for_is_a_column_of_its_own() -> None:
    half = WAITS.latency_ns // 2
    helped = query_row(2 * 10**9, "HELPED", waits=WAITS, helpers=Waits(half, half, 0, 0, 0, 0, 0))
    alone = query_row(10**9, "ALONE", waits=WAITS, helpers=Waits(0, 0, 0, 0, 0, 0, 0))
    state = showing(attribution((helped, alone), {"idle": 10**9}))
    state.press("w", "w")
    lines = screen(state, 100, 24)
    assert lines[4].endswith("HELPERS  QUERY")
    assert any(re.search(r" 50\.0 %  HELPED$", line) for line in lines)
    state = showing(attribution((alone,), {"idle": 10**9}))
    state.press("w", "w")
    assert "HELPERS" not in "".join(screen(state, 100, 24))


def test_detail_has_the_parts_of_the_latency_per_call() -> None:
    helpers = Waits(9_000_000, 0, 0, 4_000_000, 0, 0, 0)
    row = query_row(10**9, latency_ns_mean=8e6, waits=WAITS, helpers=helpers)
    state = showing(attribution((row,), {}))
    state.press("enter", None)
    text = "\n".join(screen(state, 80, 60))
    assert re.search(r"latency, on CPU +2\.00 ms +2\.00 ms\n", text)
    assert re.search(r"latency, lock +6\.00 ms +6\.00 ms\n", text)
    each_us = 4_000 / row.calls
    assert re.search(rf"helpers waited +{each_us:.3g} .s +{each_us:.3g} .s\n", text)
    transaction = dataclasses.replace(
        row, keys={"transaction": "begin; commit"}, latency_ns_mean=9e9
    )
    state = showing(attribution((transaction,), {}))
    state.press("enter", None)
    text = "\n".join(screen(state, 80, 60))
    assert re.search(r"latency, lock +75\.0 % +75\.0 %\n", text), "not of the transaction's latency"
    state = showing(attribution((query_row(10**9),), {}))
    state.press("w", "w")
    assert "waits not recorded · " in screen(state, 80, 24)[3]
    state.press("enter", None)
    text = "\n".join(screen(state, 80, 60))
    assert re.search(r"waits +not recorded +not recorded", text)
    assert "latency, " not in text


def test_what_the_host_stole_is_on_every_screen() -> None:
    stolen = query_row(3 * 10**9, "UPDATE", cpu_ns=8_000_000, stolen_ns=2_000_000)
    other = query_row(10**9, "SELECT", cpu_ns=8_000_000, stolen_ns=0)
    state = showing(attribution((stolen, other), {"idle": 10**9}))
    assert " · stolen 12.5 % of CPU · " in screen(state, 120, 24)[1]
    assert "STOLEN" not in "".join(screen(state, 120, 24)), "of a row: beside its waits"
    state.press("w", "w")
    lines = screen(state, 120, 24)
    assert lines[4].endswith("STOLEN  QUERY")
    assert any(line.endswith(" 25.0 %  UPDATE") for line in lines)
    assert any(line.endswith(" SELECT") and "25.0 %" not in line for line in lines)
    state.press("enter", None)
    assert re.search(r"of it stolen +2\.00 ms \(25\.0 %\)", "\n".join(screen(state, 120, 60)))
    for stolen_ns, notice in ((0, ""), (None, "not recorded")):
        row = query_row(10**9, "SELECT", stolen_ns=stolen_ns)
        state = showing(attribution((row,), {"idle": 10**9}))
        state.press("enter", None)
        text = "\n".join(screen(state, 120, 60))
        assert "stolen" not in text.replace("of it stolen", "")
        assert bool(re.search(r"of it stolen +not recorded", text)) == bool(notice)


# ---- keys ----------------------------------------------------------------------------------------

NAMED = ["enter", "escape", "backspace", "ctrl+c", "f7", "up", "down", "home", "end", "pagedown"]
UNTITLED = {"<": "less_than_sign", " ": "space", "+": "plus", "-": "minus", "E": "upper_e"}


@pytest.fixture
def state() -> ViewState:
    state = ViewState(groups=("fingerprint", "server", "database", "user"))
    state.accept(snapshot())
    return state


def show(state: ViewState, *rows: Row, grade: str = "measured") -> None:
    table = attribution(rows, {"idle": 10**9}, grade=grade)
    state.accept(Snapshot(table, table, 1.0))


def press(state: ViewState, *keys: str) -> Effect:
    """Presses named keys, and the characters of texts that name no key."""
    effect = Effect.NONE
    for key in keys:
        named = key in NAMED
        for character in [key] if named else key:
            effect = state.press(UNTITLED.get(character, character), None if named else character)
    return effect


@pytest.mark.parametrize(
    ("key", "figure"),
    [("e", lambda row: row.energy_nj), ("l", lambda row: row.latency_ns_mean or -1.0)],
)
def test_keys_sort_rows_in_both_directions(
    state: ViewState, key: str, figure: Callable[[Row], float]
) -> None:
    show(state, query_row(5, "unknown", latency_ns_mean=None), *typical().rows)
    assert press(state, key) is Effect.NONE
    figures = [figure(row) for row in state.rows()]
    assert figures == sorted(figures, reverse=True)
    press(state, "<")
    assert [figure(row) for row in state.rows()] == sorted(figures)


def test_a_filter_applies_while_typing_and_escape_leaves_it(state: ViewState) -> None:
    press(state, "/delete from")
    assert [row.shape.split()[0] for row in state.rows()] == ["DELETE"]
    assert press(state, "q") is Effect.NONE, "q is text while typing"
    press(state, "backspace", "enter")
    assert (state.filter, state.typing) == ("delete from", None)
    press(state, "/xyz", "escape")
    assert state.filter == "delete from"
    press(state, "escape")
    assert len(state.rows()) == 5


def test_a_paused_view_keeps_its_figures_and_remembers_what_comes(state: ViewState) -> None:
    before = state.snapshot
    press(state, " ")
    state.accept(snapshot(elapsed_s=99))
    assert state.snapshot is before
    assert len(state.power_w) == 2
    press(state, " ")
    state.accept(snapshot(elapsed_s=100))
    assert state.snapshot is not None
    assert state.snapshot.elapsed_s == 100


def test_the_cursor_follows_its_row_and_stays_within_the_table(state: ViewState) -> None:
    press(state, "down", "down")
    chosen = state.selected_row()
    press(state, "n")
    assert state.selected_row() == chosen
    press(state, "end", "pagedown")
    assert state.cursor(state.rows()) == 4
    press(state, "home", "up")
    assert state.cursor(state.rows()) == 0
    press(state, "end")
    show(state, query_row(1, "new"))
    assert state.cursor(state.rows()) == 0, "its row is gone"


def test_keys_with_effects_on_the_source(state: ViewState) -> None:
    for group in ("server", "database", "user", "fingerprint"):
        assert press(state, "g") is Effect.CONTROLS
        assert state.group == group
    assert press(state, "E") is Effect.EXPORT
    assert press(state, "R") is Effect.RESET
    assert not state.history_w
    assert press(state, "ctrl+c") is Effect.QUIT
    assert press(state, "f7") is Effect.NONE


def test_history_is_bounded_and_zero_is_not_unknown(state: ViewState) -> None:
    key = row_key(state.rows()[0])
    show(state)
    assert state.history_w[key][-1] == 0.0
    show(state, grade="none")
    assert state.history_w[key][-1] != state.history_w[key][-1], "unknown is not zero"
    for _ in range(HISTORY + 10):
        state.accept(snapshot())
    assert {len(series) for series in state.history_w.values()} == {HISTORY}
    many = [query_row(1, f"q{n}", keys={"fingerprint": f"{n:x}"}) for n in range(3000)]
    show(state, *many)
    show(state, *(dataclasses.replace(row, server="other") for row in many))
    assert len(state.history_w) == HISTORY_ROWS


def test_the_share_is_first_where_the_total_is_an_estimate() -> None:
    result = typical()
    source = dataclasses.replace(result.energy_source, grade="estimated", total_error=0.4)
    for table, first in (
        (result, "J/CALL"),
        (dataclasses.replace(result, energy_source=source), "SHARE"),
    ):
        lines = screen(showing(table), 80, 24)
        heading = next(line for line in lines if "QUERY" in line)
        assert heading.split()[1] == first
        assert "40.2 ± 0.9 %" in "\n".join(lines)
        assert next(line for line in lines if " idle" in line and "%" not in line)
