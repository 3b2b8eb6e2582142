# SPDX-License-Identifier: Apache-2.0
"""Arrow columns of numbers as numpy arrays, without a copy where Arrow holds one buffer.

pyarrow imports pandas for its own `to_numpy`, and for every Python number or text that one of its
functions takes. That lasts longer than attributing a small trace, so code that `attribute` runs
uses this module instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from qjoule.trace.columns import plain

Array = npt.NDArray[Any]
Bool = npt.NDArray[np.bool_]
#: numpy's types by Arrow's: `to_pandas_dtype` would import pandas.
_DTYPES = {
    pa.bool_(): np.dtype(bool),
    pa.float32(): np.dtype(np.float32),
    pa.float64(): np.dtype(np.float64),
    **{
        getattr(pa, f"{kind}{bits}")(): np.dtype(f"{kind}{bits}")
        for kind in ("int", "uint")
        for bits in (8, 16, 32, 64)
    },
}


def view(column: pa.ChunkedArray | pa.Array, missing: float | None = None) -> Array:
    """The column's values (n,), read-only if they are not copied; null is `missing`.

    Columns are of integers, floats or truth values. Raises `ValueError` for a null without
    `missing`.
    """
    if column.null_count and missing is None:
        raise ValueError("a column that must not have nulls has some")
    values = [_values(chunk, missing) for chunk in _chunks(column)]
    if len(values) == 1:
        return values[0]
    return np.concatenate([np.zeros(0, _DTYPES[column.type]), *values])


def is_told(column: pa.ChunkedArray | pa.Array) -> Bool:
    """Which values are not null, (n,)."""
    return np.concatenate([np.zeros(0, bool), *map(_is_told, _chunks(column))])


def bits(array: pa.Array) -> tuple[Array | None, int]:
    """Which values are not null, as Arrow has it: a bit each, the lowest first, from the given
    bit on. None: all are not null."""
    if not array.null_count:
        return None, 0
    return np.frombuffer(array.buffers()[0], np.uint8), array.offset


def text_scalar(value: str) -> pa.Scalar:
    """A text for a function of `pyarrow.compute`."""
    data = value.encode()
    offsets = np.array([0, len(data)], np.int32)
    return pa.StringArray.from_buffers(1, pa.py_buffer(offsets), pa.py_buffer(data))[0]


def _chunks(column: pa.ChunkedArray | pa.Array) -> list[pa.Array]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


def _values(array: pa.Array, missing: float | None) -> Array:
    dtype = _DTYPES[array.type]
    if missing is not None and array.null_count == len(array):
        return np.full(len(array), missing, dtype)
    is_bits = pa.types.is_boolean(array.type)
    values = _bits(array, 1) if is_bits else plain(array, dtype)
    if not array.null_count:
        return values
    return np.where(_is_told(array), values, dtype.type(missing))


def _is_told(array: pa.Array) -> Bool:
    return _bits(array, 0) if array.null_count else np.ones(len(array), bool)


def _bits(array: pa.Array, number: int) -> Bool:
    """A buffer of bits as truth values."""
    if not len(array):
        return np.zeros(0, bool)
    packed = np.frombuffer(array.buffers()[number], np.uint8)
    end = array.offset + len(array)
    bits = np.unpackbits(packed, count=end, bitorder="little")
    return bits[array.offset :].view(bool)
