# SPDX-License-Identifier: Apache-2.0
"""Waits by stack and by node of a plan: they add up, change no joules, and say what is missing."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import attribute_trace as hand
from qjoule.cli import cli
from qjoule.engine.attribute import AttributionRequest
from qjoule.engine.flame import Flame, flame
from qjoule.engine.plan_nodes import plan_nodes
from qjoule.engine.stack_waits import SampledWait, WaitSum
from qjoule.engine.stacks import PlanNode, RowStacks, Stack, functions
from qjoule.model.result import Row
from qjoule.reporters.flame_text import collapsed, nodes, table
from qjoule.trace.reader import Trace
from stacked_trace import wait, write_stacked_trace

MS = hand.MS
WAITS = [
    wait(1, 13, 1, 6),
    wait(8, 13, 1, 2, kind="network", run_queue_ns=MS // 2),
    wait(22, 12, 3, 3, probability=0.25, kind="io"),  # the same statement
    wait(12, 11, 2, 4),
    wait(13, None, 2, 1, whole=False),
]


def read(trace: Path) -> Flame:
    return flame(Trace(trace), AttributionRequest(("fingerprint",)), lambda _, at: f"f{at}")


def waits_of(read_flame: Flame, fingerprint: str) -> dict[Stack, WaitSum]:
    rows = (row for row in read_flame.rows if row.row.keys.get("fingerprint") == fingerprint)
    return dict(next(rows).waits)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stacked_trace(tmp_path_factory.mktemp("waits") / "trace", waits=WAITS)


def test_waits_stand_on_the_stacks_where_they_began(trace: Path) -> None:
    of_a, of_b = waits_of(read(trace), "aaaa"), waits_of(read(trace), "bbbb")
    deep = of_a["f100", "f200", "f7"].by_kind_ns
    assert deep == {"lock": 6 * MS, "network": 1.5 * MS, "run_queue": 0.5 * MS}
    drawn = of_a["f100", "f300"]
    assert drawn.by_kind_ns["io"] == 12 * MS
    assert drawn.sampling_ns == pytest.approx(1.96 * math.sqrt(4 * 3) * 3 * MS)
    assert sum(wait_sum.total_ns for wait_sum in of_b.values()) == 5 * MS


def test_no_joule_moves(trace: Path, tmp_path: Path) -> None:
    without = write_stacked_trace(tmp_path / "without")
    assert collapsed(read(trace).rows) == collapsed(read(without).rows)


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"ns": 5},
        {"ns": 5, "run_queue_ns": 6, "kind": "lock"},
        {"ns": -5, "run_queue_ns": 0, "kind": "lock"},
        {"ns": 5, "run_queue_ns": 0, "kind": "<b>"},
        {"ns": 5, "run_queue_ns": 0, "kind": "lock", "probability": 0.0},
        {"ns": 5, "run_queue_ns": 0, "kind": "lock", "probability": 1.5},
        {"ns": 5, "run_queue_ns": 0, "kind": "lock", "probability": math.nan},
    ],
)
def test_a_wait_without_an_end_or_sense_is_counted_as_such(
    bad: dict[str, Any], tmp_path: Path
) -> None:
    path = write_stacked_trace(tmp_path / "trace", waits=[*WAITS, wait(2, 13, 1, **bad)])
    read_flame = read(path)
    assert (read_flame.waits, read_flame.endless) == (6, 1)
    assert waits_of(read_flame, "aaaa")["f100", "f200", "f7"].total_ns == 8 * MS
    assert "6 sampled waits, 1 without an end: not counted" in run(path)[1]


@pytest.mark.parametrize(
    ("account", "kind"),
    [
        ({"wait_lock_ns": 9 * MS, "wait_sleep_ns": 0}, "lock"),
        ({"wait_lock_ns": 0, "wait_sleep_ns": 9 * MS}, "sleep"),
        ({"wait_lock_ns": MS, "wait_sleep_ns": MS}, "sleep"),
        ({}, "sleep"),
    ],
)
def test_pieces_of_a_wait_for_a_lock_are_no_sleeps(
    account: dict[str, int], kind: str, tmp_path: Path
) -> None:
    """Of a metadata lock of MySQL, say: only its query's own account knows in the end."""
    queries = [hand.query(*row) for row in hand.QUERIES]
    queries[0] |= account
    pieces = [wait(1, 13, 1, 5, kind="sleep")]
    path = write_stacked_trace(tmp_path / "trace", waits=pieces, queries=queries)
    (found,) = waits_of(read(path), "aaaa").values()
    assert {key for key, ns in found.by_kind_ns.items() if ns} == {kind}


def test_functions_have_the_waits_of_those_that_they_call(trace: Path) -> None:
    found = {function.name: function for function in functions(read(trace).rows)}
    assert found["f7"].waits.total_ns == 8 * MS
    assert found["f200"].waits.total_ns == 12 * MS
    assert found["f100"].waits.total_ns == 24 * MS
    text = table(read(trace), 30).splitlines()
    assert "wait s" in text[0] and any("I/O, lock" in line for line in text if "f100" in line)


def waited(ns: int, kind: str = "lock", probability: float = 1.0) -> WaitSum:
    wait_sum = WaitSum()
    wait_sum.add(SampledWait(kind, ns, 0, probability))
    return wait_sum


ENDS = 9e8, 1.1e9
ROW = Row({"fingerprint": "f"}, "select", "s", "queries", 1, 10**9, ENDS, 1.0, 1)
NAMES = ("main", "f", "Sort #0", "Join #1", "Join #2")
STACKS = st.lists(st.sampled_from(NAMES), max_size=6).map(
    lambda names: tuple(PlanNode(name) if "#" in name else name for name in names)
)


@given(
    st.dictionaries(STACKS, st.integers(1, 10**6), max_size=9),
    st.dictionaries(STACKS, st.integers(0, 10**12), max_size=9),
)
def test_nodes_waits_add_up_to_their_statements(
    samples: dict[Stack, int], waits: dict[Stack, int]
) -> None:
    sums = {stack: waited(ns) for stack, ns in waits.items()}
    listed = plan_nodes(RowStacks(ROW, Counter(samples), sums))
    assert sum(node.waits.total_ns for node in listed) == sum(waits.values())
    assert sum(node.energy_nj for node in listed) == ROW.energy_nj
    assert len({node.name for node in listed}) == len(listed)


def test_a_node_that_only_waits_is_listed_below_its_parent(trace: Path) -> None:
    update, lock = PlanNode("ModifyTable #0"), PlanNode("LockRows #1")
    (row, *_) = read(trace).rows
    waits: dict[Stack, WaitSum] = {("main", update, "f", lock, "g"): waited(1_300_000_000)}
    stacks = RowStacks(row.row, Counter({("main", update): 4}), waits)
    lines = nodes(replace(read(trace), rows=(stacks,))).splitlines()
    assert [line.split()[-2:] for line in lines[3:]] == [["ModifyTable", "#0"], ["LockRows", "#1"]]
    assert "  1.300     0.000  lock  " in lines[-1] and lines[-1].endswith("    LockRows #1")
    assert lines[-1].split()[:2] == ["0.0000", "0.0%"]
    alone = nodes(replace(read(trace), rows=(replace(stacks, samples=Counter()),)))
    assert "LockRows #1" in alone, "a statement without a sample of its CPU time"


def run(trace: Path, form: str = "table") -> tuple[str, str]:
    result = CliRunner().invoke(cli, ["flame", str(trace), "--format", form])
    assert result.exit_code == 0, result.stderr
    return result.stdout, result.stderr


def test_a_trace_of_an_older_version_says_that_it_has_none(tmp_path: Path) -> None:
    path = write_stacked_trace(tmp_path / "trace")
    meta = path / "meta.json"
    content = json.loads(meta.read_text())
    del content["rows"]["waits"]
    meta.write_text(json.dumps(content))
    text, notes = run(path)
    assert "wait" not in text and "waits by stack: not recorded" in notes
    text, notes = run(write_stacked_trace(tmp_path / "none"))
    assert "wait s" in text and "not recorded" not in notes, "there were none"
