# SPDX-License-Identifier: Apache-2.0
"""Which classes ran alone in a block's rows, and how much those moments say about their factors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qjoule.model.arrays import F64
from qjoule.model.features import FEATURES
from qjoule.model.fit.block import Prior
from qjoule.model.fit.observed import Rows, above_idle, predict
from qjoule.model.power_model import Moments
from qjoule.model.solo import noises_of, solo_moments

_NS = [FEATURES.index("cpu_ns"), FEATURES.index("cpu_ns_shared")]
#: Rows whose zone is active for a smaller share of them show power at rest.
_AT_REST = 0.02


@dataclass(frozen=True)
class SingleClassEvidence:
    """The evidence of rows in which one class ran alone, or nothing did.

    `precision` (p, p): of all parameters, in the order of `block.Evidence`; `alone_s` (g,): how
    long each class kept a zone active by itself.
    """

    precision: F64
    alone_s: F64

    @staticmethod
    def none(size: int, classes: int) -> SingleClassEvidence:
        return SingleClassEvidence(np.zeros((size, size)), np.zeros(classes))

    def plus(self, block: SingleClassEvidence, keep: float) -> SingleClassEvidence:
        """With the evidence of another block; `keep`: share of the earlier evidence that stays."""
        return SingleClassEvidence(
            keep * self.precision + block.precision, self.alone_s + block.alone_s
        )

    def moments(self, belief: Prior) -> Moments:
        """What a reader is shown of it. All is relative to `belief`, without any other rows."""
        fixed, size = len(belief.mean), len(self.precision)
        prior = np.zeros((size, size))
        prior[:fixed, :fixed] = belief.precision
        at = np.arange(fixed, size)
        prior[at, at] = belief.spread**-2.0
        whole = prior + self.precision
        scale = np.sqrt(np.maximum(np.diag(whole), 1e-300))
        inverse = np.linalg.inv(whole / np.outer(scale, scale)) / np.outer(scale, scale)
        variance = np.clip(np.diag(inverse)[fixed:], 1e-300, belief.spread**2)
        information_nats = np.where(
            self.alone_s > 0, 0.5 * np.log(belief.spread**2 / variance), 0.0
        )
        return Moments(self.alone_s, information_nats)


def alone_in(rows: Rows, value: F64) -> SingleClassEvidence:
    """The evidence of rows in which one class ran alone; `value` (p,): of all parameters."""
    power, slopes = predict(rows, value)
    classes = len(rows.classes)
    busy = rows.features[:, :, _NS].sum(axis=2) * rows.known[:, None]
    who = np.full(len(busy), -1, np.int64)
    # Rows of several zones are of the same times: a moment must not last from one to the next.
    for zone in range(len(rows.edge_w)):
        mine = np.flatnonzero(rows.zone == zone)
        for moment in solo_moments(busy[mine]):
            who[mine[moment.first : moment.first + moment.windows]] = moment.column
    rest = rows.known & (rows.active < _AT_REST)
    who[rest | (who == classes)] = -1  # the last column is many classes
    taken = rest | (who >= 0)
    noise_w = noises_of(power, above_idle(rows, power, value), rows.lengths_s)
    noise_w = np.hypot(noise_w, 2**0.5 * rows.edge_w[rows.zone])
    seen = slopes[taken] / noise_w[taken, None]
    ran, active_s = who >= 0, rows.active * rows.lengths_s
    seconds: F64 = np.bincount(who[ran], active_s[ran], minlength=classes).astype(np.float64)
    return SingleClassEvidence(seen.T @ seen, seconds)
