# SPDX-License-Identifier: Apache-2.0
"""The tracer at a steady rate: its memory, its CPU time, and whether it loses records."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from bench.overhead.cpu import cpu_ns, peak_resident_bytes
from bench.overhead.generator import Generator
from bench.overhead.modes import Subject, attached
from bench.overhead.rounds import rate_of

RATE = 10_000  #: queries a second
MEMORY_TARGET_MB = 40.0
CPU_TARGET = 0.02  #: of one core


@dataclass(frozen=True)
class Steady:
    """A mode under a limited load. CPU figures are shares of one core."""

    mode: str
    rate: float
    tracer_cpu: float
    reader_cpu: float
    tracer_mb: float
    reader_mb: float
    lost_records: dict[str, int] = field(default_factory=dict)


def run_steady(
    generator: Generator,
    subject: Subject,
    mode: str,
    seconds: int,
) -> Steady:
    """Observes a mode for a number of intervals of a load that is already running."""
    with attached(mode, subject) as state:
        generator.skip()
        began_s = time.monotonic()
        tracer, reader = cpu_ns([state.tracer]), cpu_ns([state.reader])
        rate = rate_of(generator.take(seconds))
        elapsed_ns = (time.monotonic() - began_s) * 1e9
        tracer_ns = cpu_ns([state.tracer]) - tracer
        reader_ns = cpu_ns([state.reader]) - reader
        memory = [peak_resident_bytes(pid) / 1e6 for pid in (state.tracer, state.reader)]
    loss = state.result.get("loss")
    return Steady(
        mode,
        rate,
        tracer_ns / elapsed_ns,
        reader_ns / elapsed_ns,
        memory[0],
        memory[1],
        dict(loss) if isinstance(loss, dict) else {},
    )
