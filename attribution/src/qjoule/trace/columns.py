# SPDX-License-Identifier: Apache-2.0
"""Numpy arrays to Arrow columns, without a Python loop over rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from qjoule.lazy_import import pa

Array = npt.NDArray[Any]


def numbers(values: Array, valid: Array | None = None) -> pa.Array:
    """`values` as a column, null where `valid` is false. Copies only strided input."""
    mask = None if valid is None or bool(valid.all()) else ~valid
    return pa.array(np.ascontiguousarray(values), mask=mask)


def instants(values_ns: Array) -> pa.Array:
    """Unsigned times below 2^63 as a signed column."""
    return pa.array(np.ascontiguousarray(values_ns).view(np.int64))


def distinct(values: Array) -> tuple[Array, Array]:
    """(codes, uniques): `uniques[codes] == values`, uniques in order of first appearance."""
    encoded = pa.array(np.ascontiguousarray(values)).dictionary_encode()
    return plain(encoded.indices, np.int32), plain(encoded.dictionary, values.dtype)


def rows_of(codes: Array, chosen: Sequence[int]) -> Iterator[tuple[int, Array]]:
    """For each of the chosen codes, in ascending order, the rows that have it. Meant for few
    codes.
    """
    if not len(chosen):
        return
    sought = np.zeros(int(codes.max(initial=chosen[-1])) + 1, bool)
    sought[list(chosen)] = True
    some = np.flatnonzero(sought[codes])
    order = some[np.argsort(codes[some], kind="stable")]
    begins = np.searchsorted(codes[order], chosen)
    ends = np.searchsorted(codes[order], chosen, side="right")
    for code, begin, end in zip(chosen, begins, ends, strict=True):
        yield code, order[begin:end]


def plain(column: pa.Array, of: npt.DTypeLike) -> Array:
    """A column of numbers without nulls as a numpy view. `to_numpy` would import pandas."""
    dtype = np.dtype(of)
    if not len(column):
        return np.empty(0, dtype)
    return np.frombuffer(column.buffers()[1], dtype, len(column), column.offset * dtype.itemsize)


def names(
    codes: Array, vocabulary: Sequence[str | None], rows: Array | None = None
) -> pa.DictionaryArray:
    """Dictionary column of `vocabulary[code]`; null if that is None, empty or out of range.

    With `rows`: of `vocabulary[codes[row]]`, for callers that already have the distinct codes. Only
    words in use are kept, so a part's dictionary does not grow with the whole trace's.
    """
    size = len(vocabulary)
    # A table of all codes, with a last entry for those out of range: no row needs hashing.
    if codes.dtype.kind == "u" and codes.dtype.itemsize == 1:
        safe, entries = codes, max(256, size)
    else:
        safe, entries = np.where((codes >= 0) & (codes < size), codes, size).astype(np.int64), size
    used = np.zeros(entries + 1, bool)
    used[safe] = True
    indices = np.full(entries + 1, -1, np.int32)
    place: dict[str, int] = {}
    for code in np.flatnonzero(used).tolist():
        word = vocabulary[code] if code < size else None
        if word:
            indices[code] = place.setdefault(word, len(place))
    found = indices[safe] if rows is None else indices[safe][rows]
    return pa.DictionaryArray.from_arrays(
        numbers(found, found >= 0), pa.array(list(place), pa.string())
    )


def looked_up(wanted: Array, keys: Array, values: Array, missing: Array) -> Array:
    """For each of `wanted`, the value of that key, or its entry in `missing`. Keys are in any
    order.

    >>> looked_up(np.array([7, 5]), np.array([9, 7]), np.array([1, 2]), np.array([0, -1]))
    array([ 2, -1])
    """
    if not keys.size:
        return missing
    order = np.argsort(keys, kind="stable")
    at = np.minimum(np.searchsorted(keys[order], wanted), keys.size - 1)
    found: Array = np.where(keys[order][at] == wanted, values[order][at], missing)
    return found


def strings(values: Sequence[str | None]) -> pa.DictionaryArray:
    """Dictionary column of some strings; for tables with few rows."""
    return pa.array(values, pa.string()).dictionary_encode()
