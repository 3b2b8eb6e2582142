# SPDX-License-Identifier: Apache-2.0
"""How the machine with hardware counters is set up: its replayed energy, its crowd of events."""

from __future__ import annotations

WATTS = 10
STEP_MS = 5
LENGTH_MS = 60_000  #: longer than any recording there
COMPETITORS = 8  #: with the tracers' own, more events than the machine has counters


def replay_text() -> str:
    """Readings of one package that draws `WATTS`, as `tracer/energy/replay.c` reads them."""
    lines = ["domain 0 package 1e-6 0"]
    lines += (f"{ms} 0 package {ms * WATTS * 1000}" for ms in range(0, LENGTH_MS, STEP_MS))
    return "\n".join(lines) + "\n"
