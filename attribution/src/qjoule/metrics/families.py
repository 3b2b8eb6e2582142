# SPDX-License-Identifier: Apache-2.0
"""Families of metrics, with values as exact decimals.

The process that listens imports this and little else, so it stays small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

#: Every fourth power of two from 16 us on: edges of the kernel side's half octaves, which begin at
#: 1 us. The last of those is open, so it has no edge here.
EDGES = tuple(range(8, 47, 4))
EDGES_S = tuple(f"{(1 << at // 2) / 1e6:.12g}" for at in EDGES)

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """One series. `buckets`: cumulative counts at `EDGES`, for a histogram, whose sum is `value`
    and whose number of calls is `count`; `octaves`: calls from 1 to 2 us, from 2 to 4 us, ..."""

    labels: Labels
    value: str
    created: str = ""  #: Unix time of a counter's beginning
    buckets: tuple[int, ...] = ()
    count: int = 0
    octaves: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Family:
    """`name` without the ending of its samples; `kind`: counter, gauge, histogram or info."""

    name: str
    kind: str
    help: str
    unit: str = ""
    samples: Sequence[Sample] = field(default_factory=tuple)


def decimal(billionths: int) -> str:
    """nJ as J, ns as s, all digits."""
    whole, part = divmod(billionths, 1_000_000_000)
    return f"{whole}.{part:09d}" if part else str(whole)


def seconds(unix_s: float) -> str:
    return f"{unix_s:.3f}"


def gauge(name: str, about: str, label: str, values: Mapping[str, int | float]) -> Family:
    """A gauge with one label."""
    samples = [Sample(((label, key),), f"{value:.12g}") for key, value in sorted(values.items())]
    return Family(name, "gauge", about, samples=samples)


def plain(name: str, about: str, value: float, unit: str = "") -> Family:
    """A gauge without labels."""
    return Family(name, "gauge", about, unit, [Sample((), f"{value:.14g}")])


def count(name: str, about: str, value: int, created: str) -> Family:
    return Family(name, "counter", about, samples=[Sample((), str(value), created)])


def by_label(name: str, about: str, label: str, values: Mapping[str, int], created: str) -> Family:
    samples = [Sample(((label, key),), str(n), created) for key, n in sorted(values.items())]
    return Family(name, "counter", about, samples=samples)
