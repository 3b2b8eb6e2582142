# SPDX-License-Identifier: Apache-2.0
"""The 95 % interval of a group's energy.

Two kinds of error are kept apart. *Random* errors come from the time at which a counter was last
updated before it was read, and from its unit. One window's error appears in the next window with
the opposite sign, so they cancel over a group that runs steadily. *Systematic* errors are those of
the power model, the total, and lost records. They are common to all calls of a fingerprint, so they
are added up and never averaged away.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Generic, TypeAlias, TypeVar, cast

import numpy as np

from qjoule.model.arrays import F64

Z95 = 1.959963984540054
_V = TypeVar("_V", float, F64)


@dataclass(frozen=True, slots=True)
class EnergyErrors(Generic[_V]):
    """The errors that make up the 95 % interval of one energy, or of each of n energies, (n,).

    `random_nj2` is a variance and `model_nj` a standard error; the others are widths at 95 %.
    """

    random_nj2: _V  #: of the windows' edges
    model_nj: _V  #: of the power model
    scaled_nj: _V  #: of multiplexed counters
    total_nj: _V  #: of the total
    loss_nj: _V  #: of lost time: the true energy may be higher by none, one or two times this
    unnamed_nj: _V  #: of records whose owner is unknown, in either direction
    down_nj: _V  #: of unknown power at rest, and of costs that are known only from one side
    up_nj: _V

    def ends(self, energy_nj: _V, *, absolute: bool = False) -> tuple[_V, _V]:
        """Lower and upper end, in whole nJ, never negative.

        `absolute`: with the error of the total, which is common to all rows.
        """
        variance = np.maximum(self.random_nj2, 0.0) + self.model_nj**2
        total_nj = self.total_nj if absolute else 0.0
        # The lost energy may be zero, the expected amount, or twice that.
        half_width_nj = np.sqrt(
            Z95**2 * variance + self.scaled_nj**2 + total_nj**2 + self.loss_nj**2
        )
        middle_nj = energy_nj + self.loss_nj
        low = middle_nj - half_width_nj - self.unnamed_nj - self.down_nj
        high = middle_nj + half_width_nj + self.unnamed_nj + self.up_nj
        return cast(_V, np.floor(np.maximum(low, 0.0))), cast(_V, np.ceil(high))

    def each(self) -> list[RowErrors]:
        """The errors of each of them, (n,)."""
        columns = (np.asarray(getattr(self, name)).tolist() for name in _ERRORS)
        return [EnergyErrors(*row) for row in zip(*columns, strict=True)]


_ERRORS = tuple(field.name for field in fields(EnergyErrors))

RowErrors: TypeAlias = EnergyErrors[float]  #: of one row's energy


def of_recordings(parts: Sequence[RowErrors]) -> RowErrors:
    """Errors of the sum of energies that were recorded separately; order does not matter.

    Errors of windows' edges are independent, so their variances add up. All other errors may be the
    same in every recording (priors, differences between statements that counters do not show, an
    estimator's curve), so the errors themselves are added up.
    """
    return EnergyErrors(
        *(math.fsum(getattr(part, f.name) for part in parts) for f in fields(EnergyErrors))
    )


def of_one_recording(parts: Sequence[RowErrors]) -> RowErrors:
    """Errors of the sum of energies of one recording, as if fully correlated: never too small."""
    sigma_nj = math.fsum(max(part.random_nj2, 0.0) ** 0.5 for part in parts)
    return replace(of_recordings(parts), random_nj2=sigma_nj**2)


def edge_sigma_nj(
    energy_nj: F64, share: F64, dt_ns: F64, *, period_ns: float, half_width_ns: F64, unit_nj: float
) -> F64:
    """Standard error of one window edge, for an entry with `share` of the window's energy.

    Uniform errors: the update period T (T/sqrt(12)), the reading's width, the counter's unit.
    """
    power_w = energy_nj / np.maximum(dt_ns, 1.0)
    phase = power_w * period_ns / math.sqrt(12)
    width = power_w * half_width_ns / math.sqrt(3)
    return np.sqrt(phase**2 + width**2 + (share * unit_nj) ** 2 / 12)
