# SPDX-License-Identifier: Apache-2.0
"""The memory of a machine: what traces and live views have shown of its power so far.

Memories of one machine are merged by union of their cells, so two agents that extend one file lose
nothing and count nothing twice. Writers take a lock, merge with what is there, and replace the file
as a whole. `docs/calibration.md` describes what is kept and how it ages.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from qjoule.errors import QjouleError
from qjoule.machine import memory_file as file
from qjoule.machine.identity import Identity, other_machine
from qjoule.model.fit.cell_algebra import folded, without
from qjoule.model.fit.cells import Cell, Conditions, union
from qjoule.root_part.client import read_given, us
from qjoule.trace.durable import write_whole

#: in the directory of a trace: the memory in force at recording
TRACE_FILE = "memory.bin"
MAX_SHAPES = 5_000  #: of one domain; beyond, those with the least evidence are integrated out
#: Cells of one domain and one set of conditions that keep the precision between their shapes.
MAX_CELLS = 16


class NotThisMachine(QjouleError):
    """The memory is of another machine."""


@dataclass(frozen=True)
class Memory:
    """Evidence on one machine. `identity`: with at least the fields that `lasting` keeps."""

    identity: Identity
    cells: tuple[Cell, ...] = ()

    def merged(self, other: Memory) -> Memory:
        """Returns the union. Order and repetition do not change the result.

        Raises `NotThisMachine`.
        """
        if reasons := differences(self.identity, other.identity):
            raise NotThisMachine(reasons[0])
        names = [lasting(memory.identity) for memory in (self, other)]
        whole = max(names, key=lambda identity: json.dumps(asdict(identity), sort_keys=True))
        return Memory(whole, union([*self.cells, *other.cells]))

    def bounded(self) -> Memory:
        """Folds old cells until the file is within its bound."""
        cells = _folded(self.cells, MAX_CELLS)
        most = MAX_SHAPES
        if file.size(cells) > file.MAX_BYTES:
            cells = _folded(cells, 0)
        while file.size(cells) > file.MAX_BYTES and most > 1:
            most = most * 3 // 4
            cells = [_largest(cell, most) for cell in cells]
        while file.size(cells) > file.MAX_BYTES:
            cells = sorted(cells, key=lambda cell: cell.when_s)[len(cells) // 4 + 1 :]
        return Memory(self.identity, union(cells))

    def to_bytes(self) -> bytes:
        return file.encode(self.identity, self.cells)

    @property
    def shapes(self) -> int:
        """Number of shapes with evidence."""
        return len({key for cell in self.cells for key in cell.keys.tolist()})


def lasting(identity: Identity) -> Identity:
    """The part of an identity that does not change without making it another machine."""
    return replace(identity, microcode="", governor="", frequency=None, kernel="")


def differences(ours: Identity, theirs: Identity) -> list[str]:
    """Lists why a memory (`ours`) must not be used on a machine: one phrase each."""
    notes = other_machine(ours, theirs)
    if ours.machine and theirs.machine:
        if ours.machine != theirs.machine:
            notes.append(f"it is of another host ({ours.host or 'unnamed'})")
    elif ours.host and theirs.host and ours.host != theirs.host:
        notes.append(f"it is of another host ({ours.host})")
    return notes


def conditions(identity: Identity, source: str, grade: str) -> Conditions:
    """The conditions under which evidence is gathered, or used."""
    limits = identity.frequency
    frequency = f"{limits.min_khz}-{limits.max_khz} {limits.boost}".strip() if limits else ""
    kernel = ".".join(identity.kernel.split(".")[:2])
    energy = f"{source} {grade}".strip()
    return Conditions(kernel, identity.governor, frequency, identity.microcode, energy)


def load(path: Path) -> Memory | None:
    """The memory in a file; None if there is no such file.

    Raises `QjouleError` if it cannot be read or is damaged.
    """
    try:
        data = read_given(path, 2 * file.MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise QjouleError(f"user {us()} cannot read {path}: {error.strerror}") from error
    if len(data) > 2 * file.MAX_BYTES:
        raise QjouleError(f"{path} is no memory: it is larger than {2 * file.MAX_BYTES} bytes")
    try:
        return Memory(*file.decode(data))
    except file.NewerMemory as error:
        raise QjouleError(f"{path} cannot be used: {error}; upgrade qjoule") from error
    except ValueError as error:
        raise QjouleError(
            f"{path} is no memory: {error}; remove it, and it is made anew"
        ) from error


def extend(path: Path, more: Memory) -> Memory:
    """Merges `more` into the file, under a lock; makes the file if there is none.

    Returns what the file holds then. Raises `QjouleError`: the file is damaged, of another machine,
    or cannot be written.
    """
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        with _locked(path):
            existing = load(path)
            whole = (existing or Memory(lasting(more.identity))).merged(more).bounded()
            data = whole.to_bytes()
            if existing is None or data != existing.to_bytes():
                write_whole(path, data)
    except OSError as error:
        raise QjouleError(f"user {us()} cannot write {path}: {error.strerror}") from error
    except NotThisMachine as error:
        raise QjouleError(f"{path} is not extended: {error}") from error
    return whole


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds the lock of a memory. The lock is a file of its own: the memory itself is replaced."""
    name = path.with_name(f".{path.name}.lock")
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _folded(cells: Iterable[Cell], most: int) -> list[Cell]:
    """Folds the oldest cells of each domain and set of conditions until `most` are unfolded."""
    alike: dict[tuple[str, Conditions], list[Cell]] = {}
    for cell in cells:
        alike.setdefault((cell.domain, cell.conditions), []).append(cell)
    bounded: list[Cell] = []
    for _, several in sorted(alike.items()):
        several.sort(key=lambda member: (member.when_s, int(member.members[0])))
        old = [member for member in several if member.folded]
        recent = [member for member in several if not member.folded]
        if len(recent) > most:
            # Fold a quarter more at once, so that a memory that often grows is seldom folded.
            first = len(recent) - most * 3 // 4
            old, recent = [*old, *recent[:first]], recent[first:]
        if len(old) > 1 or (old and not old[0].folded):
            old = [folded(old)]
        bounded += [*(_largest(member, MAX_SHAPES) for member in old), *recent]
    return bounded


def _largest(cell: Cell, most: int) -> Cell:
    """Keeps the `most` shapes with the most evidence; the others are integrated out."""
    if len(cell.keys) <= most:
        return cell
    evidence = cell.own if cell.folded else np.diag(cell.own)
    order = np.lexsort([cell.keys, -evidence])
    return without(cell, np.sort(cell.keys[order[most:]])).stored()
