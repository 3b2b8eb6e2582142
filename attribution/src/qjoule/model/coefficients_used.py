# SPDX-License-Identifier: Apache-2.0
"""What a calibration contributes to an attribution, and how the report describes it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from qjoule.model.coefficients import Coefficients
from qjoule.model.memory_used import UNREMEMBERED, Remembered
from qjoule.model.result import Attribution


@dataclass(frozen=True)
class Calibrated:
    """Coefficients of a calibrated machine; None if there are none that may be used.

    `origin` names, in one line, the machine, the date and the tool. `flags` list what does not
    fit; each continues the words "the calibration". `notes` give the reason why an existing
    calibration is not used. `memory`: what earlier traces of the machine told.
    """

    coefficients: Coefficients | None = None
    origin: str = ""
    flags: tuple[str, ...] = ()
    held_out_errors: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    memory: Remembered = UNREMEMBERED

    def said_in(self, result: Attribution) -> Attribution:
        """Returns the result with the provenance of calibration and memory added."""
        result = self.memory.said_in(result)
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
