# SPDX-License-Identifier: Apache-2.0
"""Encodes columns of records as small numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from qjoule.model.energy import I64, Bool
from qjoule.trace.views import is_told, view

#: an int is the shape's hash, in place of a fingerprint that never arrived
Value = str | int | None
#: Combinations of codes are looked up in a table up to this size; beyond that they are sorted.
_TABLE_SIZE = 1 << 20


@dataclass(frozen=True)
class Coded:
    """A column as codes into `values`; some values may not occur. `only`: the one code, if all
    rows have the same and this is known."""

    codes: I64
    values: Sequence[Value]
    only: int | None = None

    def among(self, wanted: Sequence[str]) -> Bool:
        if self.only is not None:
            return np.full(len(self.codes), self.values[self.only] in wanted)
        return np.array([value in wanted for value in self.values])[self.codes]


def coded(column: pa.ChunkedArray, missing: str) -> Coded:
    """A column's values as strings; null is `missing`."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    column = column.unify_dictionaries().combine_chunks()
    words = [missing if value is None else str(value) for value in column.dictionary.to_pylist()]
    only = None
    if len(column) and column.null_count == len(column):
        only = len(words)
    elif len(column) and not column.null_count and len(words) == 1:
        only = 0
    if only is not None:
        codes = np.broadcast_to(np.int64(only), len(column))
        return Coded(codes, [*words, missing], only)
    codes = view(column.indices, len(words)).astype(np.int64)
    return Coded(codes, [*words, missing])


def fingerprints(queries: pa.Table) -> Coded:
    """Fingerprints; the shape's hash if the text never arrived, or None."""
    column = queries.column("fingerprint")
    names = coded(column, "")
    if not column.null_count:
        return Coded(names.codes, [*names.values, None], names.only)
    named = is_told(column)
    shape = view(queries.column("shape"), 0)
    lacking = ~named & (shape != 0)
    hashes, place = np.unique(shape[lacking], return_inverse=True)
    codes = np.where(named, names.codes, len(names.values))
    codes[lacking] = len(names.values) + 1 + place.reshape(-1)
    return Coded(codes, [*names.values, None, *hashes.tolist()])


def joined(joint: I64, size: int, column: Coded) -> tuple[I64, int]:
    """Codes of pairs, and their upper bound. Their order is that of `joint`, then of `column`."""
    if column.only is not None:
        return joint, size
    width = len(column.values)
    if size * width >= 1 << 62:
        rows, joint = distinct(joint, size)
        size = len(rows)
    return joint * width + column.codes, size * width


def distinct(codes: I64, size: int) -> tuple[I64, I64]:
    """(a row of each distinct code, the place of each row's code among the distinct codes)."""
    if size > max(_TABLE_SIZE, len(codes)):
        rows, place = np.unique(codes, return_index=True, return_inverse=True)[1:]
        return rows, place.reshape(-1)
    row_of = np.full(size, -1, np.int64)
    row_of[codes] = np.arange(len(codes))
    used = np.flatnonzero(row_of >= 0)
    table = np.zeros(size, np.int64)
    table[used] = np.arange(len(used))
    return row_of[used], table[codes]
