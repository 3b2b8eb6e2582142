# SPDX-License-Identifier: Apache-2.0
"""What a calibration brings into an attribution, and what its report says of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from qjoule.model.coefficients import Coefficients
from qjoule.model.result import Attribution


@dataclass(frozen=True)
class Calibrated:
    """Coefficients of a calibrated machine; None: there are none that may be used.

    `origin` says in one line of what machine, when and with what; `flags` what of it does not fit,
    each a continuation of "the calibration"; `notes` why one that is there is not used.
    """

    coefficients: Coefficients | None = None
    origin: str = ""
    flags: tuple[str, ...] = ()
    held_out_errors: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def said_in(self, result: Attribution) -> Attribution:
        """The result with the calibration's provenance."""
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
