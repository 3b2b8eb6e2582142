# SPDX-License-Identifier: Apache-2.0
"""The evidence of earlier blocks of a trace, for the blocks after them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qjoule.model.energy import I64, Bool
from qjoule.model.fit.block import Evidence
from qjoule.model.fit.single_class import SingleClassEvidence
from qjoule.model.renumbering import Renumbering


@dataclass(frozen=True)
class DecayedEvidence:
    """Evidence of earlier blocks on the fixed parameters and these classes, sorted; `alone`: the
    part of it from times in which one class ran alone."""

    evidence: Evidence
    classes: I64
    spread: float
    alone: SingleClassEvidence

    def of(self, classes: I64) -> DecayedEvidence:
        """The evidence on `classes` instead; others are integrated out."""
        fixed = len(self.evidence.moment) - len(self.classes)
        stays = np.isin(self.classes, classes)
        old = self._kept(stays)
        at = np.concatenate(
            [np.arange(fixed), fixed + np.searchsorted(classes, self.classes[stays])]
        ).astype(np.int64)
        size = fixed + len(classes)
        out, alone = Evidence.none(size), SingleClassEvidence.none(size, len(classes))
        out.precision[np.ix_(at, at)] = old.evidence.precision
        out.moment[at] = old.evidence.moment
        alone.precision[np.ix_(at, at)] = old.alone.precision
        alone.alone_s[at[fixed:] - fixed] = old.alone.alone_s
        return DecayedEvidence(out, classes, self.spread, alone)

    @staticmethod
    def none(fixed: int, classes: I64) -> DecayedEvidence:
        size = fixed + len(classes)
        return DecayedEvidence(
            Evidence.none(size), classes, 1.0, SingleClassEvidence.none(size, len(classes))
        )

    def plus(
        self, block: Evidence, spread: float, alone: SingleClassEvidence, keep: float
    ) -> DecayedEvidence:
        """With the evidence of a block on the same classes.

        `keep`: share of the earlier evidence that still counts.
        """
        told = Evidence(
            keep * self.evidence.precision + block.precision,
            keep * self.evidence.moment + block.moment,
        )
        return DecayedEvidence(told, self.classes, spread, self.alone.plus(alone, keep))

    def renumbered(self, renumbering: Renumbering) -> DecayedEvidence:
        """With other numbers of classes; those that were merged with others are forgotten."""
        within = self.classes < len(renumbering.group)
        stays = within.copy()
        stays[within] = renumbering.alone(self.classes[within])
        old = self._kept(stays)
        return DecayedEvidence(old.evidence, renumbering.group[old.classes], self.spread, old.alone)

    def _kept(self, stays: Bool) -> DecayedEvidence:
        """Only the classes of `stays` (g,); the others are integrated out."""
        if stays.all():
            return self
        kept = np.append(np.ones(len(self.evidence.moment) - len(stays), bool), stays)
        gone = ~kept
        matrix, moment = self.evidence.precision, self.evidence.moment
        own = matrix[np.ix_(gone, gone)] + np.eye(int(gone.sum())) * self.spread**-2.0
        cross = matrix[np.ix_(kept, gone)]
        right = np.column_stack([cross.T, moment[gone] + self.spread**-2.0])
        solved = np.linalg.solve(own, right)
        left = Evidence(
            matrix[np.ix_(kept, kept)] - cross @ solved[:, :-1],
            moment[kept] - cross @ solved[:, -1],
        )
        alone = SingleClassEvidence(
            self.alone.precision[np.ix_(kept, kept)], self.alone.alone_s[stays]
        )
        return DecayedEvidence(left, self.classes[stays], self.spread, alone)
