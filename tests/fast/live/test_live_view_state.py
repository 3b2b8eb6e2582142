# SPDX-License-Identifier: Apache-2.0
"""How keys change the state, without a terminal."""

from __future__ import annotations

import dataclasses

import pytest

from fake_attribution import attribution, query_row, typical
from fake_source import snapshot
from qjoule.reporters.live_state import (
    HISTORY,
    HISTORY_ROWS,
    INTERVALS_S,
    Effect,
    Mode,
    ViewState,
    row_key,
)
from qjoule.snapshots import Snapshot

GROUPS = ("fingerprint", "server", "database", "user")


@pytest.fixture
def state() -> ViewState:
    state = ViewState(groups=GROUPS)
    state.accept(snapshot())
    return state


def type_in(state: ViewState, text: str) -> None:
    for character in text:
        state.press("space" if character == " " else character, character)


def shapes(state: ViewState) -> list[str]:
    return [row.shape.split()[0] for row in state.rows()]


@pytest.mark.parametrize(
    ("key", "figure"),
    [
        ("e", lambda row: row.energy_nj),
        ("c", lambda row: row.cpu_ns),
        ("l", lambda row: row.latency_ns_mean),
        ("n", lambda row: row.calls),
    ],
)
def test_sort_keys(state: ViewState, key: str, figure) -> None:  # type: ignore[no-untyped-def]
    assert state.press(key, key) is Effect.NONE
    figures = [figure(row) for row in state.rows()]
    assert figures == sorted(figures, reverse=True)
    state.press("less_than_sign", "<")
    assert [figure(row) for row in state.rows()] == sorted(figures)


def test_unknown_latency_sorts_last(state: ViewState) -> None:
    unknown = query_row(5, "unknown", latency_ns_mean=None)
    known = query_row(5, "known", latency_ns_mean=1.0)
    table = attribution((unknown, known), {})
    state.accept(Snapshot(table, table, 1.0))
    state.press("l", "l")
    assert [row.shape for row in state.rows()] == ["known", "unknown"]


def test_filter_applies_while_typing_and_escape_leaves_it(state: ViewState) -> None:
    type_in(state, "/delete from")
    assert shapes(state) == ["DELETE"]
    assert state.press("q", "q") is Effect.NONE, "q is text while typing"
    state.press("backspace", None)
    state.press("enter", "\r")
    assert (state.filter, state.typing) == ("delete from", None)
    type_in(state, "/xyz")
    state.press("escape", None)
    assert state.filter == "delete from"
    state.press("escape", None)
    assert len(state.rows()) == 5


def test_filter_finds_fingerprints_and_servers(state: ViewState) -> None:
    type_in(state, "/0000000000000003")
    assert len(state.rows()) == 1
    state.press("ctrl+u", None)
    type_in(state, "MARIADB")
    assert len(state.rows()) == 5
    type_in(state, "nowhere")
    state.press("enter", None)
    assert state.rows() == []
    state.press("enter", None)
    assert state.mode is Mode.TABLE
    assert state.message


def test_pause_keeps_the_screen_but_remembers(state: ViewState) -> None:
    before = state.shown
    state.press("space", " ")
    state.accept(snapshot(elapsed_s=99))
    assert state.shown is before
    assert len(state.power_w) == 2
    state.press("space", " ")
    state.accept(snapshot(elapsed_s=100))
    assert state.shown is not None
    assert state.shown.elapsed_s == 100


def test_pause_before_the_first_snapshot_still_shows_one() -> None:
    state = ViewState()
    state.press("space", " ")
    state.accept(snapshot())
    assert state.shown is not None


def test_cursor_stays_on_its_row_when_the_order_changes(state: ViewState) -> None:
    state.press("down", None)
    state.press("down", None)
    chosen = state.selected_row()
    state.press("n", "n")
    assert state.selected_row() == chosen
    state.press("end", None)
    state.press("pagedown", None)
    assert state.cursor(state.rows()) == 4
    state.press("home", None)
    state.press("up", None)
    assert state.cursor(state.rows()) == 0


def test_cursor_of_a_row_that_is_gone(state: ViewState) -> None:
    state.press("end", None)
    table = attribution((query_row(1, "new"),), {})
    state.accept(Snapshot(table, table, 1.0))
    assert state.cursor(state.rows()) == 0


def test_drill_down_and_back(state: ViewState) -> None:
    state.press("down", None)
    state.press("enter", "\r")
    assert state.mode is Mode.DETAIL
    state.press("down", None)
    assert state.scroll == 1
    state.press("up", None)
    state.press("up", None)
    assert state.scroll == 0
    state.press("escape", None)
    assert state.mode.value == "table"
    state.press("h", "h")
    assert state.mode.value == "help"
    assert state.press("q", "q") is Effect.QUIT


def test_groups_cycle(state: ViewState) -> None:
    seen = []
    for _ in GROUPS:
        assert state.press("g", "g") is Effect.CONTROLS
        seen.append(state.group)
    assert seen == ["server", "database", "user", "fingerprint"]


def test_a_source_with_one_group_says_so() -> None:
    state = ViewState()
    assert state.press("g", "g") is Effect.NONE
    assert "fingerprint" in state.message


def test_interval_moves_within_its_bounds(state: ViewState) -> None:
    for _ in range(20):
        assert state.press("plus", "+") is Effect.CONTROLS
    assert state.interval_s == INTERVALS_S[-1]
    for _ in range(20):
        state.press("minus", "-")
    assert state.interval_s == INTERVALS_S[0]
    state.interval_s = 3.0
    state.press("plus", "+")
    assert state.interval_s == 5.0


def test_effects(state: ViewState) -> None:
    assert state.press("upper_e", "E") is Effect.EXPORT
    assert state.press("upper_r", "R") is Effect.RESET
    assert not state.history_w
    assert state.press("ctrl+c", "\x03") is Effect.QUIT
    assert state.press("f7", None) is Effect.NONE


def test_cumulative_figures(state: ViewState) -> None:
    short, long = typical(duration_s=1.0), typical(duration_s=60.0)
    state.accept(Snapshot(short, long, 60.0))
    assert state.attribution is short
    state.press("a", "a")
    assert state.attribution is long


def test_history_is_bounded_in_both_directions(state: ViewState) -> None:
    table = typical()
    for _ in range(HISTORY + 10):
        state.accept(Snapshot(table, table, 1.0))
    assert {len(series) for series in state.history_w.values()} == {HISTORY}
    many = tuple(query_row(1, f"q{n}", keys={"fingerprint": f"{n:x}"}) for n in range(3000))
    for part in (many, tuple(dataclasses.replace(row, server="other") for row in many)):
        state.accept(Snapshot(attribution(part, {}), table, 1.0))
    assert len(state.history_w) == HISTORY_ROWS


def test_history_of_a_row_that_pauses_is_zero_watts(state: ViewState) -> None:
    key = row_key(state.rows()[0])
    empty = attribution((), {"idle": 10**9})
    state.accept(Snapshot(empty, empty, 2.0))
    assert state.history_w[key][-1] == 0.0
    unknown = attribution((), {}, grade="none")
    state.accept(Snapshot(unknown, unknown, 3.0))
    assert state.history_w[key][-1] != state.history_w[key][-1], "unknown is not zero"
