# SPDX-License-Identifier: Apache-2.0
"""The sums of one domain over all windows that a ledger has added up."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from qjoule.model.energy import I64
from qjoule.model.interval import GroupErrors


@dataclass
class DomainSums:
    """Sums of one domain over its packages. Its `energy_nj` and `shared_nj` are per group."""

    energy_nj: I64
    shared_nj: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    errors: GroupErrors = field(default_factory=GroupErrors)
    measured_nj: int = 0
    idle_nj: int = 0
    residual_nj: int = 0
    idle_slack_nj: list[float] = field(default_factory=lambda: [0.0, 0.0])  #: 95 %, down and up
