# SPDX-License-Identifier: Apache-2.0
"""Divides the energy of windows in proportion to a weight."""

from __future__ import annotations

import numpy as np
from studies.bench.accuracy.recording import F64


def divide(energy_nj: F64, weight: F64) -> F64:
    """`energy_nj` (p, k) to groups in proportion to `weight` (k, p, g) of each window: (g,) in nJ.

    A window and package without any weight charges nobody.
    """
    total = weight.sum(axis=2)
    rate = np.divide(energy_nj.T, total, out=np.zeros_like(total), where=total > 0)
    charged: F64 = np.einsum("kp,kpg->g", rate, weight)
    return charged
