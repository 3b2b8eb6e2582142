# SPDX-License-Identifier: Apache-2.0
"""Which record an operation is about: YCSB's distributions, drawn many at a time.

Zipfian numbers are drawn as YCSB draws them: Gray et al., Quickly Generating Billion-Record
Synthetic Databases, SIGMOD 1994, section 3.2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]

THETA = 0.99  #: YCSB's ZIPFIAN_CONSTANT
#: YCSB scrambles ranks of so many items, however many records there are (ScrambledZipfian).
SCRAMBLED_ITEMS = 10_000_000_000
_FNV_OFFSET, _FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3
_SUMMED = 1_000_000  #: terms of a zeta that are added one by one


def zeta(items: int, theta: float = THETA) -> float:
    """The sum of 1/i^theta for i from 1 to `items`.

    Beyond a million terms by the Euler-Maclaurin formula, to about 15 digits.
    """
    summed = min(items, _SUMMED)
    total = float(np.sum(np.arange(1, summed + 1, dtype=float) ** -theta))
    if items > summed:
        low, high = float(summed), float(items)
        total += (high ** (1 - theta) - low ** (1 - theta)) / (1 - theta)
        total += (high**-theta - low**-theta) / 2
        total += theta * (low ** (-theta - 1) - high ** (-theta - 1)) / 12
    return total


def zipfian(chance: np.random.Generator, count: int, items: int) -> Numbers:
    """Ranks from 0, the most popular, to `items` - 1."""
    if items == 1:
        return np.zeros(count, np.int64)
    total, of_two = zeta(items), zeta(2)
    drawn = chance.random(count)
    scaled = drawn * total
    eta = (1 - (2 / items) ** (1 - THETA)) / (1 - of_two / total) if items > 2 else 1.0
    ranks = (items * (eta * drawn - eta + 1) ** (1 / (1 - THETA))).astype(np.int64)
    ranks[scaled < of_two] = 1
    ranks[scaled < 1] = 0
    return np.minimum(ranks, items - 1)


def scrambled_zipfian(chance: np.random.Generator, count: int, records: int) -> Numbers:
    """Records, some popular, which have no order: the hash of a rank, modulo `records`."""
    return hashed(zipfian(chance, count, SCRAMBLED_ITEMS)) % records


def uniform(chance: np.random.Generator, count: int, records: int) -> Numbers:
    """Records, all equally likely."""
    return chance.integers(0, records, count)


def hashed(numbers: Numbers) -> Numbers:
    """FNV-1a of 8 bytes, big-endian, without its sign: as go-ycsb names records and scrambles."""
    value = numbers.astype(np.uint64)
    result = np.full(len(value), _FNV_OFFSET, np.uint64)
    for shift in range(56, -8, -8):
        result ^= (value >> np.uint64(shift)) & np.uint64(0xFF)
        result *= np.uint64(_FNV_PRIME)  # modulo 2^64
    signed = result.view(np.int64)
    # The one number that has no opposite stays as it is in Go; nothing that is drawn here has it.
    return np.abs(signed)
