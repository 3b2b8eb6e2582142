# SPDX-License-Identifier: Apache-2.0
"""Streams that tracers recorded in a virtual machine, and the values of its energy counters
(`fake_rapl/`).
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nightly.vm.support.machine import Run
from qjoule.contract import RECORDS, Block
from qjoule.servers.decoding import fingerprint
from qjoule.stream.blocks import Frame, Stream
from qjoule.stream.context import StreamContext
from qjoule.stream.record import record
from qjoule.trace import Meta, Trace
from qjoule.trace.writer import TraceWriter

#: By package and domain, in the module's order. More than packages draw, so that counters wrap
#: within seconds although they can hold a second of the busiest package's energy.
POWER_MW = {
    (0, "package"): 1_200_000,
    (0, "core"): 800_000,
    (0, "dram"): 90_000,
    (1, "package"): 900_000,
}
#: Where the two cores of a package are counted: its domains and each core at rest (the wrong ones
#: show more than the package), and what each core adds while it is busy.
QUIET_MW = (20_000, 8_000, 2_000)
CORES_MW, WRONG_CORES_MW = (1_000, 1_000), (30_000, 20_000)
BUSY_MW = (15_000, 9_000)
BURSTS_MS = (1500, 300, 900, 600, 1800, 200, 1200, 700)
UNIT_NJ = 500
COUNTS = 1 << 32
RANGE_UJ = COUNTS * UNIT_NJ // 1000  #: 2147 J
REST_S = 3  #: recorded after the load; including it, every package's counter wraps
NS_PER_MS = 1_000_000


def parameter(name: str, values: Iterable[int]) -> str:
    """A parameter of a module, for `insmod`."""
    return f"{name}=" + ",".join(map(str, values))


def counter_uj(power_mw: int, ms: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The value of `energy_uj` at these milliseconds of CLOCK_MONOTONIC."""
    counts = ms * power_mw * 1000 // UNIT_NJ % COUNTS
    return counts * UNIT_NJ // 1000


@dataclass(frozen=True)
class Recorded:
    """A complete stream."""

    data: bytes
    frames: tuple[Frame, ...]

    def records(self, kind: Block) -> np.ndarray:
        """All records of a kind."""
        parts = [frame.records for frame in self.frames if frame.kind is kind]
        return np.concatenate(parts) if parts else np.empty(0, RECORDS[kind])

    @property
    def loss(self) -> dict[int, int]:
        """Loss by cause, over all CPUs."""
        greatest: dict[tuple[int, int], int] = {}
        for row in self.records(Block.LOSS):
            greatest[int(row["cause"]), int(row["cpu"])] = int(row["count"])
        sums: dict[int, int] = {}
        for (cause, _), count in greatest.items():
            sums[cause] = sums.get(cause, 0) + count
        return sums

    def trace(self, directory: Path, more_counters: tuple[str, ...] = ()) -> Trace:
        """The trace that `qjoule record` would have made of it."""
        context = StreamContext(fingerprint, Meta(host="vm", more_counters=more_counters))
        record(Stream(io.BytesIO(self.data)), TraceWriter(directory), context)
        return Trace(directory)


@dataclass(frozen=True)
class Load:
    """The measurements that `guest/counted_load.c` printed about itself."""

    pid: int
    cpu: int
    t0_ns: int
    t1_ns: int
    cpu_ns: int


def recorded(run: Run, name: str) -> Recorded:
    """The stream that a script's `start NAME` and `stop NAME` made."""
    data = (run.out / f"{name}.stream").read_bytes()
    stream = Stream(io.BytesIO(data))
    frames = tuple(stream)
    assert stream.complete, stream.ended_early
    assert stream.stop_errno == 0
    return Recorded(data, frames)


def load(run: Run, name: str) -> Load:
    fields: dict[str, Any] = json.loads(run.text(f"{name}.json"))
    return Load(**fields)
