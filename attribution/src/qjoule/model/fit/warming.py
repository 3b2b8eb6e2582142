# SPDX-License-Identifier: Apache-2.0
"""Power that follows temperature, and so the power of the last seconds, as columns of a regression.

A warm chip leaks more, so all power rises by one to a few per cent within seconds to a minute of
load. Without these columns the fit takes warming for dynamic power.
"""

from __future__ import annotations

import numpy as np

from qjoule.model.arrays import F64
from qjoule.model.fit.observed import Rows

#: Time constants; any other lies between two of them and is a mixture of both.
TAU_S = (4.0, 12.0, 36.0)
#: Standard error of the power's change while the low-passed power changes by its own mean.
SIGMA = 0.02


def warmth(rows: Rows) -> F64:
    """(n, 3) low-passed power of each zone, over its mean, minus 1; 0 where it begins."""
    out = np.zeros((len(rows.power_w), len(TAU_S)))
    for z in range(len(rows.edge_w)):
        mine = np.flatnonzero(rows.zone == z)
        known = rows.known[mine]
        mean_w = float(rows.power_w[mine][known].mean()) if known.any() else 0.0
        if mean_w <= 0:
            continue
        above = np.where(known, rows.power_w[mine] / mean_w - 1.0, 0.0)
        for i, tau_s in enumerate(TAU_S):
            out[mine, i] = low_passed(above, np.exp(-rows.lengths_s[mine] / tau_s))
    return out


def low_passed(values: F64, keep: F64) -> F64:
    """(n,): each is the one before times `keep` (n,), plus 1 - `keep` of the value; from 0.

    A block has some thousand rows at most. Importing `scipy.signal` for `lfilter` takes 0.5 s.
    """
    level, out = 0.0, []
    for inflow, kept in zip(((1.0 - keep) * values).tolist(), keep.tolist(), strict=True):
        level = inflow + kept * level
        out.append(level)
    return np.array(out, np.float64)
