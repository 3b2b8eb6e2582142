# SPDX-License-Identifier: Apache-2.0
"""What follows a package's work as a whole: uncore frequency, temperature, the load line."""

from __future__ import annotations

import numpy as np
from studies.bench.accuracy.cells import Cells
from studies.bench.accuracy.effects import Uncore
from studies.bench.accuracy.machine import GRID_NS
from studies.bench.accuracy.recording import F64, I64


def uncore_level(uncore: Uncore, cells: Cells, misses: F64, step: I64) -> F64:
    """(n,) how far the uncore is up, 0 to 1; `misses` (c,) per ns, `step` (n,) of the grid."""
    busy = cells.busy_cores
    if uncore.form == "max":
        return np.minimum(cells.highest(misses) / uncore.reference_per_ns, 1.0)
    traffic = cells.total(misses)
    if uncore.form == "mean":
        return np.minimum(traffic / np.maximum(busy, 1) / uncore.reference_per_ns, 1.0)
    steps = int(step[-1]) + 1
    missed = np.bincount(step, traffic * cells.dt_ns, steps)
    spent_ns = np.bincount(step, busy * cells.dt_ns, steps)
    load = missed / np.maximum(spent_ns, 1.0) / uncore.reference_per_ns
    level, levels = 0, np.zeros(steps)
    for k in range(1, steps):
        # The step's frequency was chosen from what the step before it showed.
        if load[k - 1] > uncore.high:
            level = min(level + 1, uncore.steps - 1)
        elif load[k - 1] < uncore.low:
            level = max(level - 1, 0)
        levels[k] = level
    found: F64 = levels[step] / (uncore.steps - 1)
    return found


def heat(tau_s: float, power: F64) -> F64:
    """(steps,) temperature in each step of the grid; `power` is relative to full power.

    One thermal resistance and capacity. Before the run the load was as it is on average.
    """
    kept = float(np.exp(-GRID_NS * 1e-9 / tau_s))
    level, levels = float(np.mean(power)), []
    for one in power.tolist():
        levels.append(level)
        level = kept * level + (1 - kept) * one
    return np.array(levels)


def load_line(drop: float, load: F64) -> F64:
    """Factor on power where `load` is power over full power at nominal voltage.

    The voltage is V0 - R I, the current P / V, and power goes with V**2. So V / V0 =
    1 / (1 + R P0 / V0**2), where P0 is the power at V0; at full power the voltage is `drop` lower.
    """
    resistance = drop / (1 - drop)
    found: F64 = 1 / (1 + resistance * load) ** 2
    return found
