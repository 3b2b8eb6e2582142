# SPDX-License-Identifier: Apache-2.0
"""What is known of the machine's power and is copied into a trace, so that the trace can be
attributed with it on any machine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from qjoule.machine import in_force, memory_in_force
from qjoule.machine.calibration import TRACE_FILE, Calibration
from qjoule.machine.memory import TRACE_FILE as MEMORY_FILE
from qjoule.machine.memory import Memory
from qjoule.trace.durable import write_whole


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
        return TakenAlong(*in_force.to_record(calibration), *memory_in_force.to_record(memory))

    def write(self) -> None:
        """Writes it into the working directory."""
        if self.memory is not None:
            write_whole(Path(MEMORY_FILE), self.memory.to_bytes())
        if self.calibration is not None:
            text = replace(self.calibration, flags=self.flags).to_json()
            write_whole(Path(TRACE_FILE), text.encode())

    @property
    def said(self) -> str:
        """A phrase on the calibration."""
        if self.calibration is None:
            return "; ".join(self.flags) or "not calibrated"
        flags = "".join(f", {flag}" for flag in self.flags)
        return f"calibrated {self.calibration.date[:10]}{flags}"
