"""How far our CPU time may be from another account of it."""

from __future__ import annotations

import os

#: What is promised of a machine that does nothing else.
PROMISED = 0.03
#: Beside other work, on this machine or on its host, switches are not shown (`switch` in the loss),
#: or a CPU is away while one of the two reads its clock.
BUSY = 0.10


def tolerance(promised: float = PROMISED) -> float:
    """As a share of the CPU time. `QJOULE_QUIET=1` holds the tests to the promise."""
    return promised if os.environ.get("QJOULE_QUIET") else max(promised, BUSY)
