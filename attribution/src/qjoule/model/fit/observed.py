# SPDX-License-Identifier: Apache-2.0
"""The input of a fit: the windows of one domain, as the rows of a regression."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from qjoule.model.arrays import F64
from qjoule.model.energy import I64, Bool


@dataclass(frozen=True)
class Rows:
    """n windows of one domain, zone after zone, each in order of time.

    `power_w` (n,); `known` (n,): whether it was measured; `zone` (n,); `active` (n,): share of the
    window with any core busy; `features` (n, g + 1, 10) per ns of window, by class, where the last
    class holds all that are not in `classes` (g,); `crowd` (n, g + 1): busy cores while each class
    ran; `effects` (n, 15) per ns of window, of all classes. `edge_w` (zones,): standard error of
    one window edge as power. `bend`: how far the model may be wrong, relative to the power above
    idle. `step_s`: mean length of a row. `spans`: each row's length over `step_s`, (n,), or (1,) if
    all are alike.
    """

    power_w: F64
    known: Bool
    zone: I64
    active: F64
    crowd: F64
    features: F64
    classes: I64
    effects: F64
    edge_w: F64
    step_s: float
    bend: float = 0.02
    spans: F64 = field(default_factory=lambda: np.ones(1))

    @property
    def lengths_s(self) -> F64:
        """(n,) length of each row."""
        return self.step_s * np.broadcast_to(self.spans, self.power_w.shape)
