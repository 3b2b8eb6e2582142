# SPDX-License-Identifier: Apache-2.0
"""What a calibration and a machine's memory contribute to an attribution."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from qjoule.model.coefficients import Coefficients
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

    def annotate(self, result: Attribution) -> Attribution:
        """Returns the result with the memory's provenance added."""
        model = result.model
        return replace(
            result,
            model=replace(model, memory=self.origin, notes=(*model.notes, *self.notes)),
        )


UNREMEMBERED = Remembered()


@dataclass(frozen=True)
class Calibrated:
    """Coefficients of a calibrated machine; None if there are none that may be used.

    `origin` names, in one line, the machine, the date and the tool. `flags` list what does not fit;
    each continues the words "the calibration". `notes` give the reason why an existing calibration
    is not used. `memory`: the evidence of earlier traces of the machine.
    """

    coefficients: Coefficients | None = None
    origin: str = ""
    flags: tuple[str, ...] = ()
    held_out_errors: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    memory: Remembered = UNREMEMBERED

    def annotate(self, result: Attribution) -> Attribution:
        """Returns the result with the provenance of calibration and memory added."""
        result = self.memory.annotate(result)
        model = result.model
        return replace(
            result,
            model=replace(
                model,
                notes=(*model.notes, *self.notes),
                held_out_errors=self.held_out_errors or model.held_out_errors,
                calibration=self.origin,
                calibration_flags=self.flags,
            ),
        )


UNCALIBRATED = Calibrated()
