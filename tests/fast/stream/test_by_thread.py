# SPDX-License-Identifier: Apache-2.0
"""A server without query boundaries in a trace: it gets rows of threads, and none of queries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attribute_trace as hand
from attribute_trace import MS
from qjoule.contract import AGGREGATE, TASK, Block, OwnerKind, TaskEvent
from qjoule.engine.attribute import attribute
from qjoule.engine.live_groups import LiveGroups
from qjoule.engine.live_records import identities
from qjoule.live.stream_session import live_names
from qjoule.reporters.live_screen import compose
from qjoule.reporters.live_state import ViewState
from qjoule.reporters.table import render
from qjoule.snapshots import Snapshot
from qjoule.stream.blocks import Frame
from qjoule.stream.names import Names
from qjoule.trace.meta import Server
from qjoule.trace.reader import Trace

GENERIC = Server(2, "java:9042", "generic", rung="none")
KNOWN = Server(1, "shop-db", "mysql")
#: Threads of the generic server: 5 ms of garbage collection, 10 ms of a stage.
THREADS = [
    {"owner": 7, "kind": "server", "pid": 71, "tgid": 70, "server": 2, "role": "GC Thread#?"},
    {"owner": 8, "kind": "server", "pid": 72, "tgid": 70, "server": 2, "role": "ReadStage-?"},
]
WORK: list[tuple[float, float, int, int, int | None]] = [
    (5, 10, 1, 7, None),
    (10, 20, 1, 8, None),
]


@pytest.fixture
def beside(tmp_path: Path) -> Trace:
    """The handwritten trace, with the generic server where its second CPU was idle."""
    return Trace(write(tmp_path / "t", hand.SEGMENTS + WORK))


@pytest.fixture
def alone(tmp_path: Path) -> Trace:
    return Trace(write(tmp_path / "alone", WORK, queries=[]))


def write(
    directory: Path, work: list[tuple[float, float, int, int, int | None]], **more: Any
) -> Path:
    return hand.write(
        directory,
        owners=hand.OWNERS + THREADS,
        segments=[hand.segment(*row) for row in sorted(work)],
        meta={"servers": (KNOWN, GENERIC)},
        **more,
    )


def test_its_threads_are_background_and_do_not_count_for_coverage(beside: Trace) -> None:
    result = attribute(beside)
    threads = {row.shape: row for row in result.fixed if row.by_thread}
    assert {role: row.cpu_ns for role, row in threads.items()} == {
        "GC Thread#?": 5 * MS,
        "ReadStage-?": 10 * MS,
    }
    assert all(row.server == "java:9042" and row.rung == "none" for row in threads.values())
    assert result.coverage == pytest.approx(30 / 40)  # as without it
    assert sum(result.main.parts_nj.values()) == result.main.measured_nj
    purge = next(row for row in result.fixed if row.shape == "purge")
    assert not purge.by_thread


def test_a_table_of_threads_says_that_there_are_no_queries(alone: Trace, beside: Trace) -> None:
    text = render(attribute(alone), width=120)
    assert "server background: GC Thread#?" in text
    assert "java:9042 none (by thread)" in text
    assert "no server with queries" in text
    both = render(attribute(beside), width=120)
    assert "coverage  75.0 %" in both
    assert "java:9042 none (by thread)" in both


def screen(state: ViewState) -> list[str]:
    return [line.plain() for line in compose(state, 120, 40)]


def test_the_live_screen_lists_threads_and_looks_into_them(alone: Trace) -> None:
    result = attribute(alone)
    state = ViewState(title="x")
    state.accept(Snapshot(result, result, 1.0))
    lines = screen(state)
    assert any("java:9042 ReadStage-?" in line for line in lines)
    assert "by thread, no queries" in "\n".join(lines)
    assert "coverage" not in "\n".join(lines)
    (rest,) = (line for line in lines if "server background" in line)
    assert "0.0 %" in rest  # all of it is in rows of its own
    state.press("enter")
    text = "\n".join(screen(state))
    assert "java:9042" in text
    assert "10.0 ms" in text  # its CPU time


# ---- live names ----------------------------------------------------------------------------------


def test_live_rows_are_those_of_a_recording() -> None:
    names = Names(
        lambda *_args, **_kwargs: pytest.fail("no text"), (Server(2, "java:9042", rung="none"),)
    )
    tasks = np.zeros(3, TASK)
    for task, (pid, comm) in zip(
        tasks, ((70, b"java"), (71, b"GC Thread#0"), (72, b"GC Thread#1")), strict=True
    ):
        task["pid"], task["tgid"], task["comm"] = pid, 70, comm
        task["event"] = TaskEvent.ALIVE
    names.add_tasks(Frame(Block.TASK, 0, tasks))
    groups = LiveGroups(live_names(names))
    sums = np.zeros(3, AGGREGATE)
    sums["owner_kind"], sums["server"], sums["tgid"] = OwnerKind.SERVER, 2, 70
    sums["pid"] = 70, 71, 72
    owners, which = identities(sums)
    result = [groups.index.labels[g] for g in groups.numbers(owners)[which]]
    assert [label.shape for label in result] == ["java", "GC Thread#?", "GC Thread#?"]
    assert {label.rung for label in result} == {"none"}
