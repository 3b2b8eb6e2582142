# SPDX-License-Identifier: Apache-2.0
"""Numpy arrays to Arrow columns and back, without a Python loop over rows.

pyarrow imports pandas for its own `to_numpy`, and for every Python number or text that is passed to
one of its functions. That takes longer than attributing a small trace, so code that `attribute`
runs uses `view` and its neighbours. They copy only if the column has several buffers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from qjoule.lazy_import import pa

Array = npt.NDArray[Any]
Bool = npt.NDArray[np.bool_]


def numbers(values: Array, valid: Array | None = None) -> pa.Array:
    """`values` as a column, null where `valid` is false. Copies only strided input."""
    mask = None if valid is None or bool(valid.all()) else ~valid
    return pa.array(np.ascontiguousarray(values), mask=mask)


def instants(values_ns: Array) -> pa.Array:
    """Unsigned times below 2^63 as a signed column."""
    return pa.array(np.ascontiguousarray(values_ns).view(np.int64))


#: Below this number sorting is as fast as Arrow's hashing, and live views need not import Arrow.
_FEW = 4096


def distinct(values: Array) -> tuple[Array, Array]:
    """(codes, uniques): `uniques[codes] == values`, uniques in order of first appearance."""
    if len(values) <= _FEW:
        uniques, first, codes = np.unique(values, return_index=True, return_inverse=True)
        order = np.argsort(first)
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        return place[codes.reshape(-1)], uniques[order]
    encoded = pa.array(np.ascontiguousarray(values)).dictionary_encode()
    return numpy_view(encoded.indices, np.int32), numpy_view(encoded.dictionary, values.dtype)


def rows_of(codes: Array, wanted: Sequence[int]) -> Iterator[tuple[int, Array]]:
    """Yields each of the `wanted` codes (ascending) with its rows. Meant for few codes."""
    if not len(wanted):
        return
    sought = np.zeros(int(codes.max(initial=wanted[-1])) + 1, bool)
    sought[list(wanted)] = True
    some = np.flatnonzero(sought[codes])
    order = some[np.argsort(codes[some], kind="stable")]
    begins = np.searchsorted(codes[order], wanted)
    ends = np.searchsorted(codes[order], wanted, side="right")
    for code, begin, end in zip(wanted, begins, ends, strict=True):
        yield code, order[begin:end]


def numpy_view(column: pa.Array, of: npt.DTypeLike) -> Array:
    """A column of numbers without nulls as a numpy view. `to_numpy` would import pandas."""
    dtype = np.dtype(of)
    if not len(column):
        return np.empty(0, dtype)
    return np.frombuffer(column.buffers()[1], dtype, len(column), column.offset * dtype.itemsize)


class Words(NamedTuple):
    """Texts as indices into `words` (-1: none)."""

    codes: Array
    words: list[str]

    def to_list(self) -> list[str | None]:
        table = [*self.words, None]
        return [table[code] for code in self.codes.tolist()]

    def column(self) -> pa.DictionaryArray:
        return pa.DictionaryArray.from_arrays(
            numbers(self.codes, self.codes >= 0), pa.array(self.words, pa.string())
        )


def names(
    codes: Array, vocabulary: Sequence[str | None], rows: Array | None = None
) -> pa.DictionaryArray:
    """The result of `words` as a dictionary column."""
    return words(codes, vocabulary, rows).column()


def words(codes: Array, vocabulary: Sequence[str | None], rows: Array | None = None) -> Words:
    """Looks up `vocabulary[code]`: -1 if that is None, empty or out of range.

    With `rows`, looks up `vocabulary[codes[row]]`, for callers that have the distinct codes. The
    result has only words in use, so a part's dictionary does not grow with the trace's.
    """
    size = len(vocabulary)
    # One table entry per code, and a last one for those out of range: no row needs hashing.
    if codes.dtype.kind == "u" and codes.dtype.itemsize == 1:
        safe, entries = codes, max(256, size)
    else:
        safe, entries = np.where((codes >= 0) & (codes < size), codes, size).astype(np.int64), size
    in_use = np.zeros(entries + 1, bool)
    in_use[safe] = True
    indices = np.full(entries + 1, -1, np.int32)
    place: dict[str, int] = {}
    for code in np.flatnonzero(in_use).tolist():
        word = vocabulary[code] if code < size else None
        if word:
            indices[code] = place.setdefault(word, len(place))
    row_indices = indices[safe] if rows is None else indices[safe][rows]
    return Words(row_indices, list(place))


def looked_up(wanted: Array, keys: Array, values: Array, missing: Array) -> Array:
    """For each of `wanted`, returns the value at that key, or its entry in `missing`. Keys may be
    unsorted.

    >>> looked_up(np.array([7, 5]), np.array([9, 7]), np.array([1, 2]), np.array([0, -1]))
    array([ 2, -1])
    """
    if not keys.size:
        return missing
    order = np.argsort(keys, kind="stable")
    places = np.minimum(np.searchsorted(keys[order], wanted), keys.size - 1)
    result: Array = np.where(keys[order][places] == wanted, values[order][places], missing)
    return result


def strings(values: Sequence[str | None]) -> pa.DictionaryArray:
    """Dictionary column of some strings; for tables with few rows."""
    return pa.array(values, pa.string()).dictionary_encode()


@cache
def _dtypes() -> dict[pa.DataType, np.dtype[Any]]:
    """numpy types by Arrow type: `to_pandas_dtype` would import pandas."""
    widths = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
    names = ["float32", "float64", *widths]
    return {pa.bool_(): np.dtype(bool), **{getattr(pa, name)(): np.dtype(name) for name in names}}


def view(column: pa.ChunkedArray | pa.Array, missing: float | None = None) -> Array:
    """The column's values (n,), read-only if they are not copied; null becomes `missing`.

    Accepts integers, floats and booleans. Raises `ValueError` for a null without `missing`.
    """
    if column.null_count and missing is None:
        raise ValueError("a column that must not have nulls has some")
    values = [_values(chunk, missing) for chunk in _chunks(column)]
    if len(values) == 1:
        return values[0]
    return np.concatenate([np.zeros(0, _dtypes()[column.type]), *values])


def is_valid(column: pa.ChunkedArray | pa.Array) -> Bool:
    """Which values are not null, (n,)."""
    return np.concatenate([np.zeros(0, bool), *map(_is_valid, _chunks(column))])


def bits(array: pa.Array) -> tuple[Array | None, int]:
    """Arrow's validity bitmap (lowest bit first) and the offset of the first bit. None: no value is
    null."""
    if not array.null_count:
        return None, 0
    return np.frombuffer(array.buffers()[0], np.uint8), array.offset


def text_scalar(value: str) -> pa.Scalar:
    """A text as an argument for `pyarrow.compute`."""
    data = value.encode()
    offsets = np.array([0, len(data)], np.int32)
    return pa.StringArray.from_buffers(1, pa.py_buffer(offsets), pa.py_buffer(data))[0]


def _chunks(column: pa.ChunkedArray | pa.Array) -> list[pa.Array]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


def _values(array: pa.Array, missing: float | None) -> Array:
    dtype = _dtypes()[array.type]
    if missing is not None and array.null_count == len(array):
        return np.full(len(array), missing, dtype)
    is_bits = pa.types.is_boolean(array.type)
    values = _bits(array, 1) if is_bits else numpy_view(array, dtype)
    if not array.null_count:
        return values
    return np.where(_is_valid(array), values, dtype.type(missing))


def _is_valid(array: pa.Array) -> Bool:
    return _bits(array, 0) if array.null_count else np.ones(len(array), bool)


def _bits(array: pa.Array, number: int) -> Bool:
    """A bit-packed buffer as booleans."""
    if not len(array):
        return np.zeros(0, bool)
    packed = np.frombuffer(array.buffers()[number], np.uint8)
    end = array.offset + len(array)
    bits = np.unpackbits(packed, count=end, bitorder="little")
    return bits[array.offset :].view(bool)
