# SPDX-License-Identifier: Apache-2.0
"""Decides whose calls are forgotten when there is not enough room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def without_the_biggest(
    calls: Array, users: Mapping[int, int], sizes: Sequence[int] | None
) -> Array:
    """Drops the older half of the calls, at least one, of the user who takes the most room.

    Args:
        calls: array of `calls.CALL`, one or more, in any order, which is kept.
        users: user ids by application.
        sizes: size of each set of tags, by its number; None: each call counts as one.
    """
    applications, codes = np.unique(calls["application"], return_inverse=True)
    uids, of_application = np.unique([users[n] for n in applications.tolist()], return_inverse=True)
    of_call = of_application[codes.reshape(-1)]
    if sizes is None:
        room = np.bincount(of_call, minlength=uids.size)
    else:
        known, number = calls["tags"] >= 0, max(len(sizes), 1)
        pairs = np.unique(of_call[known] * np.int64(number) + calls["tags"][known])
        weights = np.array(sizes, np.float64)[pairs % number]
        room = np.bincount(pairs // number, weights, minlength=uids.size)
    its = np.flatnonzero(of_call == int(np.argmax(room)))
    oldest = its[np.argsort(calls["t_ns"][its], kind="stable")[: (its.size + 1) // 2]]
    return np.delete(calls, oldest)
