# SPDX-License-Identifier: Apache-2.0
"""Chooses the calibration, and the memory: the one the user gave, the trace's own, or the
machine's."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from qjoule.errors import QjouleError, UsageError
from qjoule.machine import active_memory
from qjoule.machine.calibration import TRACE_FILE, Calibration, Match, load, machine_file, match
from qjoule.machine.facts import Check
from qjoule.machine.identity import Identity, of_trace, this_machine
from qjoule.model.coefficients_used import UNCALIBRATED, Calibrated
from qjoule.trace.meta import Meta

if TYPE_CHECKING:
    from qjoule.trace.reader import Trace

NONE = "none"
_FIX = "sudo qjoule calibrate, on a machine whose energy is measured"


def for_trace(trace: Trace, choice: str | None = None, memory: str | None = None) -> Calibrated:
    """Returns the calibration of a trace: its own, a file's (`choice`), or `NONE`; and its memory.

    `memory`: as in `active_memory.for_trace`.

    Raises:
        QjouleError: the given file is absent, damaged, or of another machine.
    """
    calibrated = _for_trace(trace, choice)
    return replace(calibrated, memory=active_memory.for_trace(trace, memory))


def _for_trace(trace: Trace, choice: str | None) -> Calibrated:
    if choice == NONE:
        return UNCALIBRATED
    path = Path(choice) if choice else trace.path / TRACE_FILE
    loaded = _load(path, is_explicit=choice is not None)
    if not isinstance(loaded, Calibration):
        return loaded
    started = datetime.fromisoformat(trace.meta.start) if trace.meta.start else None
    judged = match(loaded, of_trace(trace.meta), trace.meta, started)
    return _judged(loaded, judged, path, is_explicit=choice is not None)


def for_machine(
    choice: str | None = None, memory: str | None = None
) -> Callable[[Meta], Calibrated]:
    """Returns a function that gives this machine's calibration once the energy source is known.

    The file is read at once, because our rights may not allow it later. Raises as `for_trace`; so
    does the returned function.
    """
    calibrated = _for_machine(choice)
    remembered = active_memory.for_machine(memory)
    return lambda meta: replace(calibrated(meta), memory=remembered(meta))


def _for_machine(choice: str | None) -> Callable[[Meta], Calibrated]:
    if choice == NONE:
        return lambda _meta: UNCALIBRATED
    path = Path(choice) if choice else machine_file()
    loaded = _load(path, is_explicit=choice is not None)
    if not isinstance(loaded, Calibration):
        return lambda _meta: loaded
    machine = this_machine()
    _judged(loaded, match(loaded, machine), path, is_explicit=choice is not None)

    def choose(meta: Meta) -> Calibrated:
        return _judged(loaded, match(loaded, machine, meta), path, is_explicit=choice is not None)

    return choose


def to_record(choice: str | None = None) -> tuple[Calibration | None, tuple[str, ...]]:
    """Returns the calibration to store in a trace recorded here, and notes on what does not fit.

    Raises as `for_trace`.
    """
    if choice == NONE:
        return None, ()
    path = Path(choice) if choice else machine_file()
    loaded = _load(path, is_explicit=choice is not None)
    if not isinstance(loaded, Calibration):
        return None, loaded.notes
    judged = match(loaded, this_machine())
    used = _judged(loaded, judged, path, is_explicit=choice is not None)
    return (None, used.notes) if judged.refused else (loaded, judged.flagged)


def checks(machine: Identity) -> tuple[Check, ...]:
    """Doctor's lines on what is known of the machine's power."""
    return check(machine), active_memory.check(machine)


def check(machine: Identity, path: Path | None = None) -> Check:
    """Doctor's line: whether there is a calibration, its date, and whether it fits."""
    try:
        loaded = load(path or machine_file())
    except QjouleError as error:
        return Check("calibration", False, str(error), _FIX)
    if loaded is None:
        detail = "none: shares are split by default weights, with wide intervals"
        return Check("calibration", False, detail, _FIX)
    judged = match(loaded, machine)
    if judged.refused:
        return Check("calibration", False, f"not used: {judged.refused[0]}", _FIX)
    if judged.flagged:
        return Check("calibration", None, f"{loaded.origin}; {', '.join(judged.flagged)}", _FIX)
    return Check("calibration", True, loaded.origin)


def _load(path: Path, *, is_explicit: bool) -> Calibration | Calibrated:
    """A file's calibration, or its replacement if the file is absent or damaged."""
    if is_explicit and os.path.isdir(path):  # noqa: PTH112 (Path.is_dir raises PermissionError)
        raise UsageError(f"{path} is a directory: --calibration needs a file, or '{NONE}'")
    try:
        loaded = load(path)
    except QjouleError as error:
        if is_explicit:
            raise
        return Calibrated(notes=(f"the calibration is not used: {error}",))
    if loaded is None and is_explicit:
        raise QjouleError(f"there is no calibration {path}: make one with 'qjoule calibrate'")
    return loaded or UNCALIBRATED


def _judged(
    calibration: Calibration, judged: Match, path: Path, *, is_explicit: bool
) -> Calibrated:
    if judged.refused:
        reason = judged.refused[0]
        if is_explicit:
            raise QjouleError(f"{path} cannot be used: {reason}; run 'qjoule calibrate' there")
        return Calibrated(notes=(f"the calibration is not used: {reason}",))
    return Calibrated(
        calibration.coefficients,
        calibration.origin,
        judged.flagged,
        dict(calibration.held_out_error),
    )
