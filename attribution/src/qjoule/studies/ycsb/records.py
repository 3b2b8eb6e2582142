# SPDX-License-Identifier: Apache-2.0
"""Records: their keys as go-ycsb makes them, and their values from a seed."""

from __future__ import annotations

import string
from collections.abc import Iterator

import numpy as np

from qjoule.studies.ycsb.distributions import hashed

BATCH = 1_000  #: records that are made, and loaded, at a time
_LETTERS = np.frombuffer(string.ascii_letters.encode(), np.uint8)

Record = tuple[str, list[str]]  #: key, value of each field


def keys(first: int, end: int) -> list[str]:
    """Keys of the records from `first` to `end` - 1: not in their order, as YCSB's are not."""
    return [f"user{number}" for number in hashed(np.arange(first, end, dtype=np.int64)).tolist()]


def letters(seed: list[int], count: int) -> str:
    """A text of `count` letters."""
    drawn = np.random.default_rng(seed).integers(0, len(_LETTERS), count, dtype=np.uint8)
    return _LETTERS[drawn].tobytes().decode()


def batches(count: int, fields: int, field_bytes: int, seed: int) -> Iterator[list[Record]]:
    """Records 0 to `count` - 1, at most BATCH at a time. The same seed gives the same."""
    size = fields * field_bytes
    for first in range(0, count, BATCH):
        named = keys(first, min(first + BATCH, count))
        text = letters([seed, first], len(named) * size)
        made: list[Record] = []
        for place, key in enumerate(named):
            own = text[place * size : (place + 1) * size]
            made.append((key, [own[at : at + field_bytes] for at in range(0, size, field_bytes)]))
        yield made
