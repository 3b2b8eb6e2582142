# SPDX-License-Identifier: Apache-2.0
"""What is known of the machine's power and is copied into a trace, so that the trace can be
attributed with it on any machine. A recording reads it in a process of its own: the model that this
takes along is 1.3 MB.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from qjoule.commands.record_job import Along
from qjoule.machine import active_calibration, active_memory
from qjoule.machine.calibration import TRACE_FILE, Calibration
from qjoule.machine.memory import TRACE_FILE as MEMORY_FILE
from qjoule.machine.memory import Memory


@dataclass(frozen=True)
class TakenAlong:
    """`flags`: what in the calibration does not fit this machine, or why there is none; `notes`:
    what there is to say of the memory."""

    calibration: Calibration | None = None
    flags: tuple[str, ...] = ()
    memory: Memory | None = None
    notes: tuple[str, ...] = ()

    @staticmethod
    def of(calibration: str | None, memory: str | None) -> TakenAlong:
        """By the user's choices, see `options`. Raises `QjouleError` for a file that does not
        fit."""
        return TakenAlong(
            *active_calibration.to_record(calibration), *active_memory.to_record(memory)
        )

    def packed(self) -> Along:
        """What of it a recording needs."""
        files: dict[str, bytes] = {}
        if self.memory is not None:
            files[MEMORY_FILE] = self.memory.to_bytes()
        said = "; ".join(self.flags) or "not calibrated"
        if self.calibration is not None:
            files[TRACE_FILE] = replace(self.calibration, flags=self.flags).to_json().encode()
            flags = "".join(f", {flag}" for flag in self.flags)
            said = f"calibrated {self.calibration.date[:10]}{flags}"
        return Along(files, said, self.notes)
