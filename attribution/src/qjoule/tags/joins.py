# SPDX-License-Identifier: Apache-2.0
"""Array searches among calls."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def distinct_pairs(a: Array, b: Array) -> list[tuple[Array, tuple[int, int]]]:
    """The rows of each distinct pair of values."""
    if not a.size:
        return []
    # Most have no streams. Each pair becomes one integer: sorting rows of two is ten times slower.
    streams, which = np.unique(b, return_inverse=True) if b.any() else (b[:1], np.int64(0))
    uniques, codes = np.unique(a.astype(np.int64) * streams.size + which, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    edges = np.searchsorted(codes[order], np.arange(len(uniques) + 1))
    return [
        (order[edges[n] : edges[n + 1]], (pair // streams.size, int(streams[pair % streams.size])))
        for n, pair in enumerate(uniques.tolist())
    ]


def last_before(calls: Array, wanted: Array, begins_ns: Array) -> Array:
    """Index of each query's last call on its key that began at or before it; -1: none.

    `calls` are sorted by key and time. Times are replaced by their ranks, so that key and time fit
    into one integer for the binary search.
    """
    if not calls.size:
        return np.full(wanted.size, -1, np.int64)
    times = np.unique(np.concatenate([calls["t_ns"], begins_ns]))
    width = np.int64(times.size + 1)
    at = calls["key"] * width + np.searchsorted(times, calls["t_ns"])
    sought = wanted * width + np.searchsorted(times, begins_ns)
    found = np.searchsorted(at, sought, side="right") - 1
    is_its = (wanted >= 0) & (found >= 0) & (calls["key"][np.maximum(found, 0)] == wanted)
    return np.where(is_its, found, -1)


def is_over(calls: Array, found: Array, wholes: Array, begins_ns: Array) -> Array:
    """(n,): whether the call's connection was closed between the call and its query.

    `found`: as `last_before` returns it, -1: none. `wholes`: keys of whole connections.
    """
    if not (wholes >= 0).any():
        return np.zeros(found.size, np.bool_)
    last = last_before(calls, wholes, begins_ns)
    call, end = calls[np.maximum(found, 0)], calls[np.maximum(last, 0)]
    later = end["t_ns"] > call["t_ns"]
    later |= (end["t_ns"] == call["t_ns"]) & (end["number"] > call["number"])
    over: Array = (found >= 0) & (last >= 0) & later
    return over
