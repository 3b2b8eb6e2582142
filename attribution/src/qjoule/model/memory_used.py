# SPDX-License-Identifier: Apache-2.0
"""What a machine's memory contributes to an attribution, and how the report describes it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from qjoule.model.fit.cells import Cell, Conditions
from qjoule.model.result import Attribution

_UNKNOWN = Conditions()


@dataclass(frozen=True)
class Remembered:
    """Evidence of earlier traces that may be used, and the conditions of this one.

    `origin` describes it in one line; empty if there is none. `notes` give the reason why a memory
    is not used, or only in part.
    """

    cells: tuple[Cell, ...] = ()
    conditions: Conditions = _UNKNOWN
    origin: str = ""
    notes: tuple[str, ...] = ()

    def said_in(self, result: Attribution) -> Attribution:
        """Returns the result with the memory's provenance added."""
        model = result.model
        return replace(
            result,
            model=replace(model, memory=self.origin, notes=(*model.notes, *self.notes)),
        )


UNREMEMBERED = Remembered()
