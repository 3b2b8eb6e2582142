# SPDX-License-Identifier: Apache-2.0
"""Streams of a server whose requests have no CPU time of their own.

Requests are counted on its sockets; its stages serve them. The same traffic is written as the
tracer records it and as the live view sums it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import fake_tracer
from fake_tracer import BEGIN_NS, MS, block
from qjoule.contract import AttachMode, Block, Command, Grade, Mode, OwnerKind, QueryFlag, TaskEvent
from qjoule.servers import registry

I64 = npt.NDArray[np.int64]
WINDOW_NS = 20 * MS
#: Serving threads (pid, name), and a thread that does not serve.
SERVING = ((101, b"Native-Transpor"), (102, b"ReadStage-7"))
COMPACTION = (103, b"CompactionExecu")
SHAPES = (b"SELECT a", b"SELECT b")
CPU_NS = np.array([60_000, 400_000])  #: CPU time of one request of each shape


@dataclass(frozen=True)
class Story:
    """Per window: requests by shape (windows, 2); CPU time by thread (windows, 3)."""

    requests: I64
    cpu_ns: I64

    @property
    def end_ns(self) -> int:
        return BEGIN_NS + len(self.requests) * WINDOW_NS


def story(seconds: float, seed: int = 1) -> Story:
    """The mix of requests changes every half second."""
    rng = np.random.default_rng(seed)
    windows = int(seconds * 50)
    rates = rng.uniform(0.0, [8.0, 3.0], (windows // 25 + 1, 2))
    requests = rng.poisson(np.repeat(rates, 25, axis=0)[:windows])
    served = requests @ CPU_NS * rng.uniform(0.9, 1.1, windows) + 300_000
    share = rng.uniform(0.3, 0.7, windows)
    other = rng.uniform(0, 4e6, windows)
    cpu_ns = np.stack([served * share, served * (1 - share), other], axis=1)
    return Story(requests.astype(np.int64), np.minimum(cpu_ns, 19 * MS).astype(np.int64))


def recorded(story: Story, grade: Grade = Grade.ESTIMATED) -> Iterator[bytes]:
    """The stream as `qjoule record` reads it."""
    yield from _head(Mode.RECORD, grade)
    for number, (requests, cpu_ns) in enumerate(zip(story.requests, story.cpu_ns, strict=True)):
        begin_ns = BEGIN_NS + number * WINDOW_NS
        threads = (*SERVING, COMPACTION)
        segments = [
            fake_tracer.segment(
                begin_ns,
                begin_ns + int(ns),
                pid,
                cpu=cpu,
                tgid=100,
                server=1,
                owner_kind=OwnerKind.SERVER,
            )
            for cpu, ((pid, _), ns) in enumerate(zip(threads, cpu_ns, strict=True))
        ]
        yield block(Block.SEGMENT, *segments)
        yield from _queries(number, requests)
        yield _reading(story, number)
        yield fake_tracer.flush(begin_ns + WINDOW_NS)
    yield fake_tracer.end(story.end_ns)


def live(story: Story, grade: Grade = Grade.ESTIMATED, together: int = 1) -> Iterator[bytes]:
    """The stream as `qjoule top` reads it. The agent's has several windows `together`, by kind."""
    yield from _head(Mode.LIVE, grade)
    readings: list[bytes] = []
    waiting: list[dict[str, Any]] = []
    for number, (requests, cpu_ns) in enumerate(zip(story.requests, story.cpu_ns, strict=True)):
        begin_ns = BEGIN_NS + number * WINDOW_NS
        span = {"t0_ns": begin_ns, "t1_ns": begin_ns + WINDOW_NS, "server": 1}
        threads = (*SERVING, COMPACTION)
        rows: list[dict[str, Any]] = [
            span | {"owner_kind": OwnerKind.SERVER, "pid": pid, "tgid": 100, "cpu_ns": int(ns)}
            for (pid, _), ns in zip(threads, cpu_ns, strict=True)
        ]
        rows += [
            span | {"owner_kind": OwnerKind.QUERY, "shape": shape, "calls": int(n)}
            for shape, n in enumerate(requests, 1)
            if n
        ]
        # The sums of a window come after the reading that ends it.
        readings.append(_reading(story, number))
        waiting += rows
        if len(readings) == together or number == len(story.requests) - 1:
            yield from (*readings, block(Block.AGGREGATE, *waiting))
            yield fake_tracer.flush(begin_ns + WINDOW_NS)
            readings, waiting = [], []
    yield fake_tracer.end(story.end_ns)


def _head(mode: Mode, grade: Grade) -> Iterator[bytes]:
    yield fake_tracer.head(cpus=3, mode=mode, grade=grade)
    for pid, comm in ((100, b"java"), *SERVING, COMPACTION):
        yield block(
            Block.TASK,
            {
                "t_ns": BEGIN_NS,
                "pid": pid,
                "tgid": 100,
                "event": TaskEvent.ALIVE,
                "comm": comm,
                "server": 1,
                "owner_kind": OwnerKind.SERVER,
            },
        )
    for shape, statement in enumerate(SHAPES, 1):
        yield fake_tracer.text(shape, statement, dialect=registry.dialect("cql"))


def _queries(window: int, requests: I64) -> Iterator[bytes]:
    rows = []
    for shape, count in enumerate(requests.tolist(), 1):
        for n in range(count):
            t_ns = BEGIN_NS + window * WINDOW_NS + (2 * n + shape) * 1000
            query = 1 + (window * 1000 + n) * 2 + shape
            rows.append(
                {
                    **{"query": query, "begin_ns": t_ns, "end_ns": t_ns, "session": 1},
                    **{"shape": shape, "pid": 101, "tgid": 100, "server": 1, "executions": 1},
                    **{"attach_mode": AttachMode.STATISTICAL, "command": Command.EXECUTE},
                    "flags": QueryFlag.NO_END,
                }
            )
    if rows:
        yield block(Block.QUERY, *rows)


def _reading(story: Story, window: int) -> bytes:
    """A counter's reading if each core draws 1 W and the rest 2 W, in units of 2^-14 J."""
    busy_s = story.cpu_ns[: window + 1].sum() * 1e-9
    package_j = 1.0 * busy_s + 2.0 * (window + 1) * WINDOW_NS * 1e-9
    return fake_tracer.energy(
        BEGIN_NS + (window + 1) * WINDOW_NS, int(package_j * 2**14), int(busy_s * 2**10)
    )
