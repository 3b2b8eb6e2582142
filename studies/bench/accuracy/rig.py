# SPDX-License-Identifier: Apache-2.0
"""A machine with everything that is recorded with."""

from __future__ import annotations

from dataclasses import dataclass, replace

from studies.bench.accuracy.effects import Effects
from studies.bench.accuracy.machine import PhysicalMachine
from studies.bench.accuracy.rapl import Meter
from studies.bench.accuracy.recording import Recording
from studies.bench.accuracy.tracer import Tracer

from qjoule.trace.meta import IdleState


@dataclass(frozen=True)
class Rig:
    """A machine with its effects, its energy counters and its tracer."""

    machine: PhysicalMachine
    effects: Effects
    meter: Meter
    tracer: Tracer
    governor: str

    def shown(self, recording: Recording) -> Recording:
        """The recording with the table of idle states that this machine's kernel shows."""
        states = tuple(
            IdleState(f"C{number}", exit_ns // 1000, residency_ns // 1000)
            for number, (residency_ns, exit_ns) in enumerate(self.effects.idle_states, 1)
        )
        return replace(recording, idle_states=states)
