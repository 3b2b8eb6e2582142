# SPDX-License-Identifier: Apache-2.0
"""Chooses the memory: the one the user gave, the trace's own, or the machine's."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from qjoule.errors import QjouleError, UsageError
from qjoule.machine.facts import Check
from qjoule.machine.identity import Identity, of_trace, this_machine
from qjoule.machine.memory import (
    TRACE_FILE,
    Memory,
    conditions,
    differences,
    extend,
    load,
)
from qjoule.model.coefficients_used import UNREMEMBERED, Remembered
from qjoule.model.fit.cells import Cell
from qjoule.root_part.client import home_of, root_part
from qjoule.servers.processes import asking_user
from qjoule.trace.meta import Meta

if TYPE_CHECKING:
    from qjoule.trace.reader import Trace

NONE = "none"
MACHINE_FILE = Path("/var/lib/qjoule/memory.bin")
_DAY_S = 86_400.0
#: Sources that read the same counters, by one name.
_SAME_COUNTERS = {"powercap": "rapl", "perf": "rapl"}


def own_file() -> Path:
    """Returns the memory file of this user's commands: all users' file if they may write it, else
    one in their home."""
    if os.access(MACHINE_FILE.parent, os.W_OK):
        return MACHINE_FILE
    if root_part().connection is not None:  # the root part reads it with that user's rights
        return Path(home_of(asking_user()), ".local/state/qjoule/memory.bin")
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")  # noqa: PTH111
    return Path(base, "qjoule", "memory.bin")


def for_trace(trace: Trace, choice: str | None = None) -> Remembered:
    """Returns the memory to use for a trace: its own copy, a file (`choice`), or none (`NONE`).

    A file that does not exist counts as an empty memory. Raises `QjouleError`: the given file is
    damaged, or of another machine.
    """
    if choice == NONE:
        return UNREMEMBERED
    identity = _identity(trace)
    if choice is None:
        try:
            memory = load(trace.path / TRACE_FILE)
        except QjouleError as error:
            return Remembered(notes=(f"the memory is not used: {error}",))
        if memory is None:
            return UNREMEMBERED
    else:
        memory = _load_chosen(Path(choice)) or Memory(identity)
    if reasons := differences(memory.identity, identity):
        if choice is not None:
            raise QjouleError(f"{choice} cannot be used for {trace.path}: {reasons[0]}")
        return Remembered(notes=(f"the memory is not used: {reasons[0]}",))
    return _select_cells(memory, identity, trace.meta)


def for_machine(choice: str | None = None) -> Callable[[Meta], Remembered]:
    """Returns a function that gives this machine's memory once the energy source is known.

    The files are read at once, because our rights may not allow it later. Raises as `for_trace`.
    """
    if choice == NONE:
        return lambda _meta: UNREMEMBERED
    memory, notes = to_record(choice)
    if memory is None:
        return lambda _meta: Remembered(notes=notes)

    def choose(meta: Meta) -> Remembered:
        used = _select_cells(memory, memory.identity, meta)
        return replace(used, notes=(*notes, *used.notes))

    return choose


def to_record(choice: str | None = None) -> tuple[Memory | None, tuple[str, ...]]:
    """Returns the memory to store in a trace recorded here, and notes on files that were left out.

    It has this machine's identity, even if it holds no evidence. Raises as `for_trace`.
    """
    if choice == NONE:
        return None, ()
    try:
        machine = this_machine()
    except QjouleError as error:
        return None, (f"no memory: {error}",)
    whole, notes = Memory(machine), []
    for path in [Path(choice)] if choice else dict.fromkeys((MACHINE_FILE, own_file())):
        try:
            memory = _load_chosen(path) if choice else load(path)
            if memory is not None:
                whole = whole.merged(memory)
        except QjouleError as error:
            if choice:
                raise QjouleError(f"{path} cannot be used here: {error}") from error
            notes.append(f"the memory is not used: {error}")
    now_s = datetime.now(UTC).timestamp()
    if any(cell.when_s > now_s + _DAY_S for cell in whole.cells):
        notes.append("the memory holds evidence from later than now: was the clock set back?")
    return replace(whole.bounded(), identity=machine), tuple(notes)


def where_to_extend(trace: Trace, choice: str | None = None) -> Path | None:
    """Returns the file to which the evidence of a trace is added; None: no file.

    By default this machine's, if the trace was recorded here from counters, and with a memory.
    Never for parts that a flight recorder saved: they may overlap, and nothing may count twice.
    """
    if choice == NONE or trace.meta.imported is not None or trace.meta.part is not None:
        return None
    if choice is not None:
        return Path(choice)
    try:
        memory = load(trace.path / TRACE_FILE)
        machine = this_machine()
    except QjouleError:
        return None
    if memory is None or trace.meta.energy.grade != "measured":
        return None
    is_same = bool(machine.machine) and memory.identity.machine == machine.machine
    return own_file() if is_same and not differences(memory.identity, machine) else None


def add(path: Path, cells: Sequence[Cell], identity: Identity) -> None:
    """Adds the evidence of a trace or a live view to a file. Raises `QjouleError`."""
    if cells:
        extend(path, Memory(identity, tuple(cells)))


def identity_of(trace: Trace) -> Identity:
    """The machine of a trace, as it was at recording."""
    return _identity(trace)


def check(machine: Identity) -> Check:
    """Doctor's line: what this user's commands remember of the machine."""
    try:
        memory = load(own_file())
    except QjouleError as error:
        return Check("memory", None, f"not used: {error}", f"rm {own_file()}")
    if memory is None:
        return Check("memory", True, "empty: it grows with 'qjoule attribute' and 'qjoule top'")
    if reasons := differences(memory.identity, machine):
        return Check("memory", None, f"not used: {reasons[0]}", f"rm {own_file()}")
    return Check("memory", True, origin(memory.cells))


def origin(cells: Sequence[Cell]) -> str:
    """One line about evidence; empty if there is none."""
    if not cells:
        return ""
    first, last = (
        datetime.fromtimestamp(pick(cell.when_s for cell in cells), UTC) for pick in (min, max)
    )
    shapes = len({key for cell in cells for key in cell.keys.tolist()})
    parts = sum(len(cell.members) for cell in cells if not cell.domain.endswith("/rest"))
    rest = ", power at rest" if any(cell.domain.endswith("/rest") for cell in cells) else ""
    return f"{parts} stretches from {first:%Y-%m-%d} to {last:%Y-%m-%d}, {shapes} shapes{rest}"


def _identity(trace: Trace) -> Identity:
    """Returns the identity in the trace's memory if that matches meta.json, else meta.json's."""
    identity = of_trace(trace.meta)
    try:
        memory = load(trace.path / TRACE_FILE)
    except QjouleError:
        return identity
    return identity if memory is None or differences(memory.identity, identity) else memory.identity


def _load_chosen(path: Path) -> Memory | None:
    if os.path.isdir(path):  # noqa: PTH112 (Path.is_dir raises PermissionError)
        raise UsageError(f"{path} is a directory: --memory needs a file, or '{NONE}'")
    return load(path)


def _select_cells(memory: Memory, identity: Identity, meta: Meta) -> Remembered:
    """Selects the cells of the trace's energy source and grade."""
    source = _SAME_COUNTERS.get(meta.energy.source, meta.energy.source)
    current = conditions(identity, source, meta.energy.grade)
    cells = tuple(cell for cell in memory.cells if cell.conditions.energy == current.energy)
    notes = _notes(cells, memory, current.energy)
    return Remembered(cells, current, origin(cells), notes)


def _notes(cells: tuple[Cell, ...], memory: Memory, energy: str) -> tuple[str, ...]:
    others = sorted({cell.conditions.energy for cell in memory.cells} - {energy})
    if not cells and others:
        return (f"the memory is not used: it is of {others[0]}, not of {energy}",)
    return ()
