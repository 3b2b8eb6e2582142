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

    def merge(self, later: DomainSums) -> None:
        """Adds the sums of windows that follow; there must be room for all of its groups."""
        count = len(later.energy_nj)
        self.energy_nj[:count] += later.energy_nj
        self.shared_nj[:count] += later.shared_nj
        self.errors.merge(later.errors)
        self.measured_nj += later.measured_nj
        self.idle_nj += later.idle_nj
        self.residual_nj += later.residual_nj
        for side in (0, 1):
            self.idle_slack_nj[side] += later.idle_slack_nj[side]
