# SPDX-License-Identifier: Apache-2.0
"""How keys change the state of the live view, without a terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from fake_attribution import attribution, query_row, typical
from fake_source import snapshot
from qjoule.model.result import Row
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
UNTITLED = {"<": "less_than_sign", " ": "space", "+": "plus", "-": "minus", "E": "upper_e"}


@pytest.fixture
def state() -> ViewState:
    state = ViewState(groups=GROUPS)
    state.accept(snapshot())
    return state


def show(state: ViewState, *rows: Row, grade: str = "measured") -> None:
    table = attribution(rows, {"idle": 10**9}, grade=grade)
    state.accept(Snapshot(table, table, 1.0))


def press(state: ViewState, *keys: str) -> Effect:
    """Presses named keys, and the characters of texts that name no key."""
    effect = Effect.NONE
    for key in keys:
        named = key in ("enter", "escape", "backspace", "ctrl+u", "ctrl+c", "f7") or key in (
            "up", "down", "home", "end", "pagedown",
        )  # fmt: skip
        for one in [key] if named else key:
            effect = state.press(UNTITLED.get(one, one), None if named else one)
    return effect


@pytest.mark.parametrize(
    ("key", "figure"),
    [
        ("e", lambda row: row.energy_nj),
        ("c", lambda row: row.cpu_ns),
        ("l", lambda row: row.latency_ns_mean or -1.0),
        ("n", lambda row: row.calls),
    ],
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


def test_a_filter_finds_fingerprints_and_servers(state: ViewState) -> None:
    press(state, "/0000000000000003")
    assert len(state.rows()) == 1
    press(state, "ctrl+u", "MARIADB")
    assert len(state.rows()) == 5
    press(state, "nowhere", "enter", "enter")
    assert state.rows() == []
    assert state.mode is Mode.TABLE
    assert state.message


def test_a_paused_view_keeps_its_figures_and_remembers_what_comes(state: ViewState) -> None:
    before = state.shown
    press(state, " ")
    state.accept(snapshot(elapsed_s=99))
    assert state.shown is before
    assert len(state.power_w) == 2
    press(state, " ")
    state.accept(snapshot(elapsed_s=100))
    assert state.shown is not None
    assert state.shown.elapsed_s == 100
    empty = ViewState(paused=True)
    empty.accept(snapshot())
    assert empty.shown is not None, "the first is shown"


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


def test_details_and_help_scroll_and_close(state: ViewState) -> None:
    press(state, "down", "enter", "down")
    assert (state.mode, state.scroll) == (Mode.DETAIL, 1)
    press(state, "up", "up")
    assert state.scroll == 0
    press(state, "escape")
    assert state.mode.value == "table"
    press(state, "h")
    assert state.mode.value == "help"
    assert press(state, "q") is Effect.QUIT


def test_keys_with_effects_on_the_source(state: ViewState) -> None:
    for group in ("server", "database", "user", "fingerprint"):
        assert press(state, "g") is Effect.CONTROLS
        assert state.group == group
    assert press(state, "E") is Effect.EXPORT
    assert press(state, "R") is Effect.RESET
    assert not state.history_w
    assert press(state, "ctrl+c") is Effect.QUIT
    assert press(state, "f7") is Effect.NONE
    only = ViewState()
    assert press(only, "g") is Effect.NONE
    assert "fingerprint" in only.message


def test_the_interval_moves_within_its_bounds(state: ViewState) -> None:
    assert press(state, "+" * 20) is Effect.CONTROLS
    assert state.interval_s == INTERVALS_S[-1]
    press(state, "-")
    assert state.interval_s == INTERVALS_S[-2]
    press(state, "-" * 20)
    assert state.interval_s == INTERVALS_S[0]
    state.interval_s = 3.0
    press(state, "+")
    assert state.interval_s == 5.0


def test_cumulative_figures(state: ViewState) -> None:
    short, long = typical(duration_s=1.0), typical(duration_s=60.0)
    state.accept(Snapshot(short, long, 60.0))
    assert state.attribution is short
    press(state, "a")
    assert state.attribution is long


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
