# SPDX-License-Identifier: Apache-2.0
"""What a live view is asked to show, and what it uses besides the stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from qjoule.engine.keys import EVERYTHING, Selection
from qjoule.engine.live_groups import GROUPS
from qjoule.engine.memory_adapter import Told, nobody
from qjoule.model.coefficients import IdlePolicy
from qjoule.model.coefficients_used import UNCALIBRATED, Calibrated
from qjoule.trace.meta import Meta

#: Returns the calibration, once energy source and domains are known.
Choose = Callable[[Meta], Calibrated]


def uncalibrated(_meta: Meta) -> Calibrated:
    return UNCALIBRATED


@dataclass(frozen=True)
class LiveOptions:
    """Options of a live view.

    Attributes:
        samples: the stream has queries that were drawn at random, which snapshots then have.
        where: selects queries.
        groups: the groupings from the beginning; the first is by statement. Beside the usual ones,
            tags that appear are offered too.
        told: called now and then, and at the end, with what was learned of the machine.
        refresh_s: between two snapshots' learning, if no block ends; 0: each snapshot learns.
    """

    idle: IdlePolicy = "separate"
    choose: Choose = uncalibrated
    samples: bool = False
    where: Selection = EVERYTHING
    groups: tuple[str, ...] = GROUPS
    told: Told = nobody
    refresh_s: float = 0.0
