# SPDX-License-Identifier: Apache-2.0
"""Setup of the machine with hardware counters: its replayed energy and its competing events."""

from __future__ import annotations

WATTS = 10
STEP_MS = 5
LENGTH_MS = 60_000  #: longer than any recording there
COMPETITORS = 8  #: together with the tracers' own, more events than the machine has counters


def replay_text() -> str:
    """Readings of one package that draws `WATTS`, in the format of `tracer/energy/replay.c`."""
    lines = ["domain 0 package 1e-6 0"]
    lines += (f"{ms} 0 package {ms * WATTS * 1000}" for ms in range(0, LENGTH_MS, STEP_MS))
    return "\n".join(lines) + "\n"
