"""Numpy arrays to Arrow columns, without a Python loop over rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

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
    return encoded.indices.to_numpy(), encoded.dictionary.to_numpy()


def names(codes: Array, vocabulary: Sequence[str | None]) -> pa.DictionaryArray:
    """Dictionary column of `vocabulary[code]`; null where that is None, empty or out of range.

    Only the words in use are kept: a part's dictionary does not grow with the whole trace's.
    """
    if not codes.size:
        return pa.DictionaryArray.from_arrays(pa.array([], pa.int32()), pa.array([], pa.string()))
    used_codes, used = distinct(codes.astype(np.int64))
    words = [vocabulary[code] if 0 <= code < len(vocabulary) else None for code in used.tolist()]
    kept = [word for word in words if word]
    place = {word: index for index, word in enumerate(dict.fromkeys(kept))}
    indices = np.array([place[word] if word else -1 for word in words], np.int32)[used_codes]
    return pa.DictionaryArray.from_arrays(
        numbers(indices, indices >= 0), pa.array(list(place), pa.string())
    )


def strings(values: Sequence[str | None]) -> pa.DictionaryArray:
    """Dictionary column of some strings; for tables with few rows."""
    return pa.array(values, pa.string()).dictionary_encode()
