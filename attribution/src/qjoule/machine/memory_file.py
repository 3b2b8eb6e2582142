# SPDX-License-Identifier: Apache-2.0
"""The bytes of a memory's file, schema `qjoule.memory/1`.

A line with the schema, the length of a header (8 bytes), the header (JSON), the cells' arrays in
the header's order, and the SHA-256 of all of that. Numbers are little-endian, and matrices that are
symmetric are stored as their lower triangle. Texts of statements are not in it: shapes are hashes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from qjoule.lazy_import import hashlib
from qjoule.machine.identity import Identity
from qjoule.model.fit.cells import Cell, Conditions
from qjoule.shapes.safe_text import sanitise, shorten
from qjoule.typed_json import read_as

VERSION = 1
_FAMILY = b"qjoule.memory/"
SCHEMA = _FAMILY + b"%d\n" % VERSION
MAX_BYTES = 2_000_000
_MAX_NAMES, _MAX_CELLS, _MAX_SHAPES, _MAX_MEMBERS = 256, 4_096, 100_000, 100_000
_LATEST_S = 4e9  #: seconds since 1970, in 2096
_DIGEST = 32
_HEADER_BYTES = 1_000  #: about the size of the header, and of each cell's entry
_LINE = 200  #: longest phrase from a file, in characters


class NewerMemory(ValueError):
    """The file was written by a newer qjoule."""


@dataclass(frozen=True)
class _CellHeader:
    """A cell's entry in the file's header."""

    source: str
    domain: str
    when_s: float
    conditions: tuple[str, ...]
    names: tuple[str, ...]
    shapes: int
    members: int
    folded: bool
    spread: float
    anew: bool = False


@dataclass(frozen=True)
class _Header:
    identity: Identity
    cells: tuple[_CellHeader, ...]


def encode(identity: Identity, cells: Sequence[Cell]) -> bytes:
    heads = [
        _CellHeader(
            f"{cell.source:016x}",
            cell.domain,
            cell.when_s,
            tuple(cell.conditions),
            cell.names,
            len(cell.keys),
            len(cell.members),
            cell.folded,
            cell.spread,
            cell.anew,
        )
        for cell in cells
    ]
    text = json.dumps(asdict(_Header(identity, tuple(heads))), allow_nan=False).encode()
    arrays = [array.tobytes() for cell in cells for array in _arrays(cell)]
    body = b"".join([SCHEMA, len(text).to_bytes(8, "little"), text, *arrays])
    return body + hashlib.sha256(body).digest()


def size(cells: Sequence[Cell]) -> int:
    """About how many bytes the cells take."""
    return _HEADER_BYTES + sum(_bytes(cell) for cell in cells)


def _bytes(cell: Cell) -> int:
    f, g = len(cell.names), len(cell.keys)
    own = g if cell.folded else g * (g + 1) // 2
    numbers = f + f * (f + 1) // 2 + g * f + own + f + g
    return _HEADER_BYTES + 4 * numbers + 17 * g + 8 * len(cell.members)


def decode(data: bytes) -> tuple[Identity, tuple[Cell, ...]]:
    """The contents of a file's bytes.

    Raises `NewerMemory`; `ValueError`, with one line about what is wrong, for anything but a whole
    memory with finite numbers.
    """
    line, newline, _ = data[:64].partition(b"\n")
    version = line.removeprefix(_FAMILY)
    if not newline or not line.startswith(_FAMILY) or not version.isdigit():
        raise ValueError(f"it does not begin with {SCHEMA.decode().strip()}")
    if int(version) > VERSION:
        raise NewerMemory(f"it is of version {int(version)}, this qjoule reads {VERSION}")
    begin = len(SCHEMA) + 8
    if line + b"\n" != SCHEMA or len(data) < begin + _DIGEST:
        raise ValueError("it is cut off")
    if hashlib.sha256(data[:-_DIGEST]).digest() != data[-_DIGEST:]:
        raise ValueError("its checksum is wrong: it is damaged")
    length = int.from_bytes(data[len(SCHEMA) : begin], "little")
    if length > len(data) - begin - _DIGEST:
        raise ValueError("its header is cut off")
    header = _header(data[begin : begin + length])
    reader = _Reader(data[begin + length : -_DIGEST])
    cells = tuple(_cell(head, reader) for head in header.cells)
    if reader.remaining:
        raise ValueError(f"{reader.remaining} bytes follow its last cell")
    return header.identity, cells


def _header(text: bytes) -> _Header:
    try:
        header: _Header = read_as(
            _Header, json.loads(text, parse_constant=_no_number), "the header"
        )
    except RecursionError:
        raise ValueError("its header is nested too deeply") from None
    except (ArithmeticError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(shorten(sanitise(str(error)), _LINE)) from error
    if len(header.cells) > _MAX_CELLS:
        raise ValueError(f"it has {len(header.cells)} cells")
    for head in header.cells:
        _check(head)
    return header


def _check(head: _CellHeader) -> None:
    if not (math.isfinite(head.when_s) and 0 <= head.when_s <= _LATEST_S):
        raise ValueError("the time of a cell is out of range")
    if not (math.isfinite(head.spread) and 1e-6 <= head.spread <= 1e3):
        raise ValueError("the spread of a cell is out of range")
    if len(head.conditions) != len(Conditions._fields):
        raise ValueError("a cell has other conditions")
    if len(head.names) > _MAX_NAMES or len(set(head.names)) != len(head.names):
        raise ValueError("a cell has too many names, or one twice")
    if not (0 <= head.shapes <= _MAX_SHAPES and 1 <= head.members <= _MAX_MEMBERS):
        raise ValueError("a cell has too many shapes or members")


def _cell(head: _CellHeader, reader: _Reader) -> Cell:
    f, g = len(head.names), head.shapes
    value = reader.floats(f)
    keys, releases = reader.words(g), reader.words(g)
    fresh = reader.take("u1", g)
    members = reader.words(head.members)
    fixed, cross = reader.symmetric(f), reader.floats(g * f).reshape(g, f)
    own = reader.floats(g) if head.folded else reader.symmetric(g)
    centred = reader.floats(f + g)
    if (fresh > 1).any() or (np.diff(keys) == 0).any() or (keys[1:] < keys[:-1]).any():
        raise ValueError("the shapes of a cell are not in order")
    if (members[1:] <= members[:-1]).any():
        raise ValueError("the members of a cell are not in order")
    if (np.diag(fixed) < 0).any() or ((own if head.folded else np.diag(own)) < 0).any():
        raise ValueError("a cell has negative evidence")
    cell = Cell(
        int(head.source, 16),
        head.domain,
        head.when_s,
        Conditions(*head.conditions),
        head.names,
        value,
        keys,
        releases,
        fresh.astype(bool),
        fixed,
        cross,
        own,
        centred,
        head.spread,
        members,
        head.anew,
    )
    if not cell.is_sound:
        raise ValueError("the evidence of a cell contradicts itself")
    return cell


def _arrays(cell: Cell) -> Iterator[npt.NDArray[Any]]:
    """The arrays of a cell, in the order of the file."""
    yield cell.value.astype("<f4")
    yield cell.keys.astype("<u8")
    yield cell.releases.astype("<u8")
    yield cell.fresh.astype("u1")
    yield cell.members.astype("<u8")
    yield cell.fixed[np.tril_indices(len(cell.names))].astype("<f4")
    yield cell.cross.astype("<f4")
    yield (cell.own if cell.folded else cell.own[np.tril_indices(len(cell.keys))]).astype("<f4")
    yield cell.centred.astype("<f4")


class _Reader:
    """Takes arrays from bytes. Raises `ValueError` where there are not enough."""

    def __init__(self, data: bytes) -> None:
        self._data, self._offset = data, 0

    @property
    def remaining(self) -> int:
        return len(self._data) - self._offset

    def take(self, kind: str, count: int) -> npt.NDArray[Any]:
        length = np.dtype(kind).itemsize * count
        if length > self.remaining:
            raise ValueError("it is cut off")
        out = np.frombuffer(self._data, kind, count, self._offset)
        self._offset += length
        return out

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        return self.take("<u8", count).astype(np.uint64)

    def floats(self, count: int) -> npt.NDArray[np.float64]:
        out = self.take("<f4", count).astype(np.float64)
        if not np.isfinite(out).all():
            raise ValueError("it holds a number that is not finite")
        return out

    def symmetric(self, count: int) -> npt.NDArray[np.float64]:
        out = np.zeros((count, count))
        out[np.tril_indices(count)] = self.floats(count * (count + 1) // 2)
        return out + np.tril(out, -1).T


def _no_number(text: str) -> float:
    raise ValueError(f"it holds {text}")
