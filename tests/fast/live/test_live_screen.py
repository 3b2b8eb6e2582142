# SPDX-License-Identifier: Apache-2.0
"""Complete screens, composed without a terminal."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from fake_attribution import attribution, query_row, typical
from fake_source import snapshot
from qjoule.model.result import PARTS, Attribution
from qjoule.reporters import format as fmt
from qjoule.reporters.live_frame import cut, wrap
from qjoule.reporters.live_screen import compose
from qjoule.reporters.live_state import ViewState
from qjoule.shapes.other_id import OtherId
from qjoule.snapshots import Snapshot


def screen(state: ViewState, width: int, height: int) -> list[str]:
    lines = compose(state, width, height)
    assert len(lines) == height
    for line in lines:
        end = 0
        for span in line.spans:
            assert span.x >= end, "spans do not overlap"
            end = span.x + cell_len(span.text)
        assert end <= width
    return [line.plain() for line in lines]


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


SIZES = [(20, 5), (60, 16), (80, 24), (300, 100)]
HOSTILE = ("\x1b[2J\x1b]0;x\x07", "[red]x[/red]", "a\nb\x00\x9b", "表" * 200, "")


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("mode", ["", "enter", "h", "/"])
def test_every_screen_fits_and_is_safe(width: int, height: int, mode: str) -> None:
    for shape in HOSTILE:
        row = query_row(10**9, shape, server=shape, rung=shape, flags=(shape,))
        state = showing(attribution((row, query_row(5)), {"idle": 10**9}, loss={"X": 3}))
        state.press(mode, mode if len(mode) == 1 else None)
        text = "\n".join(screen(state, width, height))
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)
    screen(showing(attribution((query_row(0),), {}, grade="none")), width, height)


def test_a_screen_without_figures_waits() -> None:
    state = ViewState(title="replay x")
    assert "waiting" in "\n".join(screen(state, 40, 6))
    state.ended = True
    screen(state, 40, 6)


def test_a_filter_moves_the_rest_to_other_queries() -> None:
    state = showing(typical())
    for character in "/delete":
        state.press(character, character)
    state.press("enter", None)
    lines = screen(state, 80, 24)
    assert any("other queries (4)" in line for line in lines)
    *figures, total = power_figures(lines)
    assert sum(figures) == total


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


def test_the_screen_scrolls_to_the_cursor() -> None:
    rows = tuple(query_row(1000 - n, f"q{n:02}") for n in range(40))
    state = showing(attribution(rows, {}))
    for _ in range(20):
        state.press("down", None)
    text = "\n".join(screen(state, 80, 24))
    assert "q20" in text
    assert "q00" not in text


def test_optional_columns_appear_with_their_data() -> None:
    keys = {"fingerprint": "f" * 16, "database": "shop", "user": "web"}
    row = query_row(10**9, keys=keys, cycles=2.0)
    lines = screen(showing(attribution((row,), {})), 200, 24)
    assert all(title in lines[4] for title in ("DB", "USER/APP", "FINGERPRINT"))
    assert "IPC" not in lines[4], "cycles without instructions give no IPC"
    assert "shop" in lines[5]


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
    state, table = ViewState(), attribution((query_row(10**9, long, ids=ids, **counts),), {})
    state.accept(Snapshot(table, table, 1.0))
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
