# SPDX-License-Identifier: Apache-2.0
"""Rows of sampled waits: each stack gets the end of its own wait, whatever arrives first, and what
is forged or lost is counted.
"""

from __future__ import annotations

import io
from typing import Any

import pytest

import fake_tracer as ft
from qjoule.contract import Block, OwnerKind, StackFlag, Wait
from qjoule.stream.blocks import Stream
from qjoule.stream.ingest import Ingest, Tables

T0, MS = ft.BEGIN_NS, ft.MS


def rows(*blocks: bytes) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, int]]:
    """The tables `waits` and `samples`, and the losses."""
    batches: list[Tables] = []
    ingest = Ingest(batches.append, ft.context())
    for frame in Stream(io.BytesIO(ft.head() + b"".join(blocks) + ft.end(T0 + 9000 * MS))):
        ingest.add(frame)
    meta = ingest.finish(complete=True)
    tables = [
        [row for batch in batches if name in batch for row in batch[name].to_pylist()]
        for name in ("waits", "samples")
    ]
    return tables[0], tables[1], dict(meta.loss)


def begin(t_ms: float, pid: int = 7, *, probability: int = 0, **segment: Any) -> bytes:
    at_ns = T0 + round(t_ms * MS)
    of = {"owner_kind": OwnerKind.QUERY, "query": 5, "cpu": 1} | segment
    stack = ft.records(Block.SEGMENT, [ft.segment(at_ns, at_ns, pid, **of)])[0]
    flags = StackFlag.WAIT | StackFlag.WHOLE
    row = {"segment": stack, "frame": 11, "flags": flags, "probability": probability}
    return ft.block(Block.STACK, row)


def ended(t_ms: float, ms: float, pid: int = 7, **other: Any) -> bytes:
    row = {"begin_ns": T0 + round(t_ms * MS), "ns": round(ms * MS), "pid": pid, "kind": Wait.LOCK}
    return ft.block(Block.WAIT_END, row | other)


def flush(t_ms: float) -> bytes:
    """Closes a batch."""
    return ft.flush(T0 + round(t_ms * MS))


def test_a_wait_has_what_its_stack_and_its_end_say() -> None:
    waits, samples, loss = rows(begin(3, probability=1 << 30), ended(3, 20, run_queue_ns=MS))
    assert samples == [] and loss == {}
    (wait,) = waits
    assert (wait["t_ns"], wait["cpu"], wait["query"]) == (T0 + 3 * MS, 1, 5)
    assert (wait["frame"], wait["whole"], wait["probability"]) == (11, True, 0.25)
    assert (wait["kind"], wait["ns"], wait["run_queue_ns"]) == ("lock", 20 * MS, MS)


@pytest.mark.parametrize("first", ["begin", "end"])
def test_the_end_may_come_in_another_batch_before_or_after(first: str) -> None:
    """A thread wakes up on another CPU, whose ring is read earlier."""
    blocks = [begin(3000), ended(3000, 1500)]
    if first == "end":
        blocks.reverse()
    waits, _, _ = rows(blocks[0], flush(3500), blocks[1], flush(6000))
    assert [(wait["ns"], wait["kind"]) for wait in waits] == [(1500 * MS, "lock")]


def test_waits_of_one_thread_and_of_one_moment_are_told_apart() -> None:
    blocks = begin(3), begin(3, 8), begin(30), ended(30, 4), ended(3, 2, 8), ended(3, 1)
    waits, _, _ = rows(*blocks)
    assert sorted((wait["t_ns"] - T0, wait["ns"]) for wait in waits) == [
        (3 * MS, MS),
        (3 * MS, 2 * MS),
        (30 * MS, 4 * MS),
    ]


def test_a_wait_that_never_ended_says_so() -> None:
    (wait,), _, loss = rows(begin(3), flush(1500), flush(3000))
    assert wait["ns"] is wait["run_queue_ns"] is wait["kind"] is None
    assert loss == {}


def test_a_lost_end_does_not_hold_its_wait_back() -> None:
    """The thread has gone on: it waits anew."""
    waits, _, _ = rows(begin(3), flush(1500), begin(2000), flush(3500), ended(2000, 3000))
    assert [(wait["t_ns"] - T0, wait["ns"]) for wait in waits] == [
        (3 * MS, None),
        (2000 * MS, 3000 * MS),
    ]


def test_an_end_may_come_after_the_threads_next_wait() -> None:
    """Its ring was read before, and the ring with both stacks after it."""
    waits, _, _ = rows(begin(1400), begin(1600), flush(1500), ended(1400, 100), flush(3000))
    assert [(wait["t_ns"] - T0, wait["ns"]) for wait in waits] == [
        (1400 * MS, 100 * MS),
        (1600 * MS, None),
    ]


def test_an_end_whose_stack_was_lost_is_dropped() -> None:
    """It may not be taken for that of a later wait."""
    waits, _, _ = rows(ended(3, 5), flush(1500), flush(3000), begin(3001))
    assert [wait["ns"] for wait in waits] == [None]


def test_samples_of_cpu_time_are_as_before() -> None:
    segment = ft.records(Block.SEGMENT, [ft.segment(T0, T0, 7, owner_kind=OwnerKind.SERVER)])[0]
    sample = ft.block(Block.STACK, {"segment": segment, "frame": 4, "flags": StackFlag.KERNEL})
    waits, samples, _ = rows(sample, begin(3))
    assert [row["frame"] for row in samples] == [4]
    assert [row["frame"] for row in waits] == [11]


@pytest.mark.parametrize(
    ("block", "valid"),
    [
        (begin(3, query=0), False),
        (begin(3, owner_kind=17), False),
        (begin(3, pid=1 << 30), False),
        (begin(3, probability=1), True),
        (ended(3, 5, kind=6), False),
        (ended(3, 5, kind=1 << 31), False),
        (ended(3, 5, run_queue_ns=6 * MS), False),
        (ended(3, 5, ns=1 << 63), False),
        (ended(3, 5, begin_ns=(1 << 64) - 1), False),
    ],
)
def test_forged_records_are_left_out_and_counted(block: bytes, valid: bool) -> None:
    waits, _, loss = rows(begin(1, 8), ended(1, 1, 8), block)
    assert loss == ({} if valid else {"invalid": 1})
    assert len(waits) == 1 + valid
    assert all(0 < wait["probability"] <= 1 for wait in waits)
