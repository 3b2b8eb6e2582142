# SPDX-License-Identifier: Apache-2.0
"""The live view's page of a row's functions and nodes of plans, as complete screens."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_attribution import attribution, query_row, screen
from qjoule.engine.stacks import (
    CUT,
    KERNEL,
    PlanNode,
    RecentStacks,
    RowStacks,
    Stack,
    samples_with,
    sampling_share,
)
from qjoule.reporters.format import UNKNOWN
from qjoule.reporters.live_export import screen_document
from qjoule.reporters.live_stacks import MIN_SAMPLES
from qjoule.reporters.live_state import Mode, ViewState
from qjoule.snapshots import Snapshot

NODE = PlanNode("Sort #2")
SCAN = PlanNode("Seq Scan #3")
SAMPLES: Counter[Stack] = Counter(
    {
        ("main", "exec", "sort"): 40,
        ("main", "exec", "scan"): 10,
        ("main", "exec"): 20,
        ("main", "exec", "read", KERNEL): 5,
        (CUT, "scan"): 20,
        (CUT,): 5,
    }
)
PLANNED: Counter[Stack] = Counter(
    {
        ("main", NODE, "exec", "sort"): 60,
        ("main", NODE, "exec", SCAN, "scan"): 30,
        ("main", "plan"): 10,
    }
)


def showing(
    samples: Counter[Stack] | None,
    *,
    shape: str = "select ?",
    energy_nj: int = 10**10,
    grade: str = "measured",
    lost: int = 0,
    missing: tuple[str, ...] = (),
    unknown: int = 0,
) -> ViewState:
    row = query_row(energy_nj, shape)
    table = attribution((row,), {}, grade=grade)
    rows = {} if samples is None else {row.identity: RowStacks(row, samples)}
    state = ViewState(title="mariadb")
    recent = RecentStacks(rows, 42.0, {"no room": lost}, missing, unknown)
    state.accept(Snapshot(table, table, 42.0, stacks=recent))
    state.press("f", "f")
    return state


def text_of(state: ViewState, width: int = 80, height: int = 24) -> str:
    return "\n".join(screen(state, width, height))


def table(text: str, title: str) -> list[list[str]]:
    """The cells below a title, until an empty line."""
    lines = text.splitlines()
    first = next(at for at, line in enumerate(lines) if title in line)
    rows = []
    for line in lines[first + 1 :]:
        if not line.strip():
            break
        rows.append(re.split(r"\s{2,}", line.strip()))
    return rows


def test_the_hottest_functions_stand_first_with_joules_samples_and_error() -> None:
    text = text_of(showing(SAMPLES))
    assert "last 42.0 s · 100 samples · 10.0 J · 25.0 % not followed to the end" in text
    rows = table(text, "FUNCTION")
    assert [cells[-1] for cells in rows] == [
        *("sort", "scan", "exec", "unknown (not followed)", KERNEL)
    ]
    assert sampling_share(40, 100) == pytest.approx(0.0974, abs=1e-4)
    assert rows[0] == ["40.0 ± 9.8 %", "40.0 %", "4.00 J", "40", "sort"]
    assert [cells[1:4] for cells in rows[1:3]] == [
        ["30.0 %", "3.00 J", "30"],
        ["75.0 %", "2.00 J", "20"],
    ]
    assert sum(int(cells[3]) for cells in rows) == 100, "each sample has one innermost function"
    assert "Not followed: servers that started after top did" in text_of(showing(SAMPLES), 80, 40)


def test_nodes_of_a_plan_stand_above_the_functions() -> None:
    text = text_of(showing(PLANNED), 120, 40)
    nodes = table(text, "NODE OF THE PLAN")
    assert [(cells[1], cells[-1]) for cells in nodes] == [
        ("90.0 %", NODE),
        ("30.0 %", SCAN),
        ("10.0 %", "(no node)"),
    ]
    assert [cells[3] for cells in nodes] == ["60", "30", "10"]
    assert text.index("NODE OF THE PLAN") < text.index("FUNCTION")
    assert [cells[-1] for cells in table(text, "FUNCTION")] == ["sort", "scan", "plan"]
    assert "NODE OF THE PLAN" not in text_of(showing(SAMPLES))


@pytest.mark.parametrize("count", [None, 1, MIN_SAMPLES - 1])
def test_of_too_few_samples_no_share_is_shown(count: int | None) -> None:
    missing = ("--stacks: mariadb has none: it has ended",)
    stack: Stack = ("main", "sort")
    samples = None if count is None else Counter({stack: count})
    text = text_of(showing(samples, missing=missing))
    assert f"{count or 0} samples" in text
    assert f"too few samples to divide its joules: at least {MIN_SAMPLES} are needed" in text
    assert missing[0] in text
    assert "sort" not in text and "%" not in "".join(text.splitlines()[4:])
    assert ("no row has samples in this time" in text) == (count is None)


def test_losses_and_servers_without_stacks_are_said() -> None:
    missing = ("--stacks: mysql has none: no rights",)
    state = showing(SAMPLES, lost=1234, unknown=4321, missing=missing)
    text = text_of(state, 120, 40)
    assert "1,234 lost, of all rows" in text
    assert "--stacks: mysql has none: no rights" in text
    assert "of all rows: 4,321 samples of no known row" in text


def test_without_energy_shares_have_no_joules() -> None:
    rows = table(text_of(showing(SAMPLES, grade="none")), "FUNCTION")
    assert rows[0][1:4] == ["40.0 %", UNKNOWN, "40"]


def test_more_than_ten_are_counted() -> None:
    many: Counter[Stack] = Counter({("main", f"f{n:02}"): 5 + n for n in range(25)})
    rows = table(text_of(showing(many)), "FUNCTION")
    assert [cells[-1] for cells in rows] == [*(f"f{24 - n:02}" for n in range(10)), "and 15 more"]


HOSTILE = ("\x1b[2J\x1b]0;x\x07", "[red]x[/red]", "a\nb\x00\x9b", "表" * 300, "", "\u202egnp")
SIZES = [(1, 1), (20, 5), (40, 12), (80, 24), (120, 40), (300, 100)]


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_every_page_fits_and_is_safe(width: int, height: int) -> None:
    for hostile in HOSTILE:
        stacks: Counter[Stack] = Counter(
            {("main", hostile): 30, (hostile, PlanNode(f"{hostile} #1"), hostile): 9}
        )
        for samples in (stacks, None):
            state = showing(samples, shape=hostile, missing=(hostile,), lost=5)
            text = text_of(state, width, height)
            assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)
            state.press("pagedown")
            text_of(state, width, height)


@given(
    st.dictionaries(
        st.lists(st.sampled_from("abcd"), min_size=1, max_size=5).map(tuple),
        st.integers(1, 99),
        min_size=1,
    )
)
def test_functions_own_parts_add_up(stacks: dict[Stack, int]) -> None:
    row = RowStacks(query_row(10**9), Counter(stacks))
    samples = samples_with(row)
    assert sum(own for own, _ in samples.values()) == row.count
    for name, (own, inside) in samples.items():
        assert own <= inside == sum(n for stack, n in stacks.items() if name in stack)


def test_the_key_opens_and_leaves_the_page() -> None:
    state = showing(SAMPLES)
    modes = [state.mode]
    for key in ("f", "enter", "f", "escape"):
        state.press(key, key if len(key) == 1 else None)
        modes.append(state.mode)
    assert modes == [Mode.STACKS, Mode.TABLE, Mode.DETAIL, Mode.STACKS, Mode.TABLE]


def test_without_the_option_the_key_says_how_to_get_it() -> None:
    row = query_row(10**9)
    state = ViewState(no_stacks="functions are not sampled: start top with --stacks")
    state.press("f", "f")
    assert "--stacks" in state.message, "also before the first snapshot"
    for keys in ((), ("enter",)):
        state.accept(Snapshot(attribution((row,), {}), attribution((row,), {}), 1.0))
        for key in (*keys, "f"):
            state.press(key, key if len(key) == 1 else None)
        assert state.mode is not Mode.STACKS
        assert "start top with --stacks" in text_of(state).splitlines()[-1]


def test_a_row_that_no_longer_runs_keeps_its_page() -> None:
    state = showing(SAMPLES)
    shown = state.snapshot
    assert shown is not None
    state.accept(Snapshot(attribution((), {"idle": 5}), shown.total, 44.0, stacks=shown.stacks))
    assert "100 samples" in text_of(state)
    state.accept(Snapshot(attribution((), {"idle": 5}), attribution((), {"idle": 5}), 46.0))
    assert "this row is in no snapshot since the last reset" in text_of(state)


def test_a_paused_page_stays() -> None:
    state = showing(SAMPLES)
    state.press("space", " ")
    shown = state.snapshot
    assert shown is not None
    state.accept(Snapshot(shown.interval, shown.total, 44.0, stacks=RecentStacks({}, 44.0)))
    assert "100 samples" in text_of(state)


def test_an_export_has_what_the_page_shows() -> None:
    state = showing(PLANNED, lost=3, unknown=4, missing=("mysql has none",))
    exported = screen_document(state)["view"]["selected"]["stacks"]
    entries = exported.pop("functions"), exported.pop("nodes")
    assert exported == {
        "seconds": 42.0,
        "samples": 100,
        "too_few": False,
        "lost": 3,
        "of_no_row": 4,
        "energy_j": 10.0,
        "missing": ["mysql has none"],
    }
    for entry in (*entries[0], *entries[1]):
        for key in ("self", ""):
            samples = entry.pop(f"{key}_samples" if key else "samples")
            half = entry.pop(f"{key}_share_half_width" if key else "share_half_width")
            assert half == pytest.approx(sampling_share(samples, 100))
            entry[key or "all"] = samples
    assert [[tuple(entry.values()) for entry in some] for some in entries] == [
        [("sort", 60, 60), ("scan", 30, 30), ("plan", 10, 10)],
        [(NODE, 60, 90), (SCAN, 30, 30), ("(no node)", 10, 10)],
    ]


@pytest.mark.parametrize("count", [None, MIN_SAMPLES - 1])
def test_an_export_marks_too_few_samples(count: int | None) -> None:
    stack: Stack = ("main", "sort")
    samples = None if count is None else Counter({stack: count})
    state = showing(samples, missing=("mysql has none",))
    exported = screen_document(state)["view"]["selected"]["stacks"]
    assert (exported["samples"], exported["too_few"]) == (count or 0, True)
    assert exported["energy_j"] == (None if count is None else 10.0)
    assert exported["missing"] == ["mysql has none"]


def test_the_page_of_functions_is_in_the_help() -> None:
    state = showing(SAMPLES)
    state.press("escape")
    state.press("h", "h")
    assert "where a row's joules went in the server's code" in text_of(state)
