# SPDX-License-Identifier: Apache-2.0
"""Finds the group that each segment is charged to: that of its query, or else of its owner."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qjoule.model import _sweep
from qjoule.model.energy import I64, Bool

U32 = npt.NDArray[np.uint32]
U64 = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Ids:
    """n ids; 0 is none. `bits`: which of them are there, a bit each, the lowest first, from bit
    `offset` on, as in Arrow; None: all."""

    ids: U64
    bits: npt.NDArray[np.uint8] | None = None
    offset: int = 0

    @property
    def span(self) -> tuple[int, int]:
        """The least and the greatest id; (0, 0) if there is none."""
        return _sweep.span(self.ids, self.bits, self.offset)

    @property
    def filled(self) -> U64:
        """(n,) a copy of the ids, 0 for those that are not there."""
        if self.bits is None:
            return self.ids.copy()
        end = self.offset + len(self.ids)
        told = np.unpackbits(self.bits, count=end, bitorder="little")[self.offset :]
        return np.where(told.view(bool), self.ids, np.uint64(0))


@dataclass(frozen=True)
class GroupsById:
    """The group of each id from `first` on, below 0 for none, and whether it is marked: (n,)."""

    first: int
    group: I64
    marked: Bool


@dataclass(frozen=True)
class Charged:
    """`group` (n,) of each segment; sums of the segments' time."""

    group: I64
    server_ns: int  #: of queries, and of owners that are marked
    named_ns: int  #: of queries that are marked


def charge(
    times_ns: tuple[I64, I64], owner: U32, owners: GroupsById, query: Ids, queries: GroupsById
) -> Charged:
    """Charges n segments, which begin and end at `times_ns`.

    The last entry of `owners`, whose `first` is 0, stands for all owners that are not in it.
    Queries that are not in `queries` have no group.
    """
    t0_ns, t1_ns = times_ns
    group = np.empty(len(t0_ns), np.int64)
    server_ns, named_ns = _sweep.charge(
        np.ascontiguousarray(t0_ns, np.int64),
        np.ascontiguousarray(t1_ns, np.int64),
        np.ascontiguousarray(owner, np.uint32),
        np.ascontiguousarray(query.ids, np.uint64),
        query.bits,
        query.offset,
        owners.group,
        owners.marked,
        queries.first,
        np.ascontiguousarray(queries.group, np.int64),
        np.ascontiguousarray(queries.marked, np.bool_),
        group,
    )
    return Charged(group, server_ns, named_ns)
