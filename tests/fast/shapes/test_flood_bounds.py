# SPDX-License-Identifier: Apache-2.0
"""Data that strangers cause is kept in bounded memory, and displaces nobody else's."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest

from qjoule.contract import SEGMENT, TASK, OwnerKind, TaskEvent
from qjoule.servers import registry
from qjoule.servers.cassandra.wire import Batches
from qjoule.servers.mongodb.wire import Cursors
from qjoule.shapes.shape import Texts
from qjoule.stream.owners import Owners

MOST = 1_000


def forked(first: int, number: int, t_ns: int) -> np.ndarray:
    """Forks of processes whose exits are never reported."""
    tasks = np.zeros(number, TASK)
    tasks["pid"] = tasks["tgid"] = np.arange(first, first + number)
    tasks["t_ns"], tasks["event"], tasks["comm"] = t_ns, TaskEvent.FORK, b"bomb"
    return tasks


def ran(t_ns: int, *threads: tuple[int, OwnerKind, int]) -> np.ndarray:
    segments = np.zeros(len(threads), SEGMENT)
    for segment, (pid, kind, server) in zip(segments, threads, strict=True):
        segment["pid"] = segment["tgid"] = pid
        segment["owner_kind"], segment["server"] = kind, server
        segment["t0_ns"], segment["t1_ns"] = t_ns, t_ns + 1
    return segments


def test_lives_without_an_end_are_bounded() -> None:
    owners = Owners(max_threads=MOST)
    alive = forked(7, 3, 1)
    alive["event"], alive["comm"] = TaskEvent.ALIVE, (b"backup", b"purge", b"idle")
    alive["server"][1:2] = 1
    owners.apply(alive)
    for batch in range(1, 30):
        t_ns = batch * 1_000
        owners.apply(forked(100 + batch * 200, 200, t_ns))
        bombs = [(100 + batch * 200 + i, OwnerKind.PROCESS, 0) for i in range(200)]
        owners.resolve(ran(t_ns, (7, OwnerKind.PROCESS, 0), *bombs))
        owners.forget(t_ns)
        assert len(owners._lives) <= MOST
    found = owners.resolve(ran(40_000, (7, OwnerKind.PROCESS, 0), (8, OwnerKind.SERVER, 1)))
    rows = {row["owner"]: row for row in owners.take_changes().to_pylist()}
    assert [rows[owner]["comm"] for owner in found.tolist()] == ["backup", "purge"]
    assert len(rows) >= 29 * 200, "each has its row in the trace all the same"


def test_a_thread_number_that_is_used_again_ends_the_life_before() -> None:
    owners = Owners()
    for t_ns in range(0, 3_000_000_000_000, 30_000_000_000):
        owners.apply(forked(100, 1, t_ns + 1))
        owners.resolve(ran(t_ns + 2, (100, OwnerKind.PROCESS, 0)))
        owners.forget(t_ns)
        assert len(owners._lives[100, 100]) <= 2


def test_texts_are_bounded_by_bytes_and_the_last_stay() -> None:
    texts = Texts(max_bytes=1_000)
    for shape in range(100):
        texts.add(shape, "x" * 100)
        assert texts.get(0) is not None, "asked for each time"
        assert texts.bytes <= 1_000
    assert [shape in texts for shape in (0, 1, 50, 99)] == [True, False, False, True]
    texts.add(99, "y")
    assert texts.bytes == 901


@pytest.mark.parametrize(
    ("kept", "dialect"),
    [(Cursors(), registry.dialect("mongodb")), (Batches(), registry.dialect("cql"))],
)
def test_long_statements_of_ever_new_shapes(kept: Cursors | Batches, dialect: int) -> None:
    """100,000 statements of 4 KiB are 400 MB."""
    shapes = count(1)
    text = "x" * 4_096
    for _ in range(10_000):
        kept.learn(next(shapes), dialect, text)
    assert kept._texts.bytes <= 16 << 20
