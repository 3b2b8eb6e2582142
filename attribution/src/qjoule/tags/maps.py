# SPDX-License-Identifier: Apache-2.0
"""Tags of calls as a column of queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qjoule.lazy_import import pa
from qjoule.tags.definitions import Tags

Array = NDArray[Any]


def tags_type() -> pa.DataType:
    """The type of the column."""
    return pa.map_(pa.string(), pa.string())


def as_maps(sets: Sequence[Tags], calls: Array, found: Array) -> pa.MapArray:
    """A map per query with its call's tags and trace; null if there is no call.

    Args:
        sets: tags by the numbers that calls have.
        calls: array of `calls.CALL`.
        found: (n,) index in `calls` of each query's call; -1: none.
    """
    names: list[str] = []
    values: list[str] = []
    offsets = np.zeros(found.size + 1, np.int32)
    chosen = calls[np.maximum(found, 0)] if calls.size else calls
    tags = chosen["tags"].tolist()
    traced = chosen["traced"].tolist()
    for at in np.flatnonzero(found >= 0).tolist():
        pairs = sets[tags[at]]
        if traced[at]:
            ids = (("span", chosen["span"][at]), ("trace", chosen["trace"][at]))
            pairs = (*pairs, *((name, bytes(value).hex()) for name, value in ids))
        offsets[at + 1] = len(pairs)
        names += [name for name, _ in pairs]
        values += [value for _, value in pairs]
    ends = np.cumsum(offsets, dtype=np.int64).astype(np.int32)
    return pa.MapArray.from_arrays(
        pa.array(ends, pa.int32(), mask=np.append(found < 0, False)),
        pa.array(names, pa.string()),
        pa.array(values, pa.string()),
    )
