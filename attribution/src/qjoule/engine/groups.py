# SPDX-License-Identifier: Apache-2.0
"""Groups of a recorded trace: those of threads outside any query."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from qjoule.model.charge import U32, GroupsById
from qjoule.model.energy import I64, Bool
from qjoule.model.labels import BY_THREAD, KERNEL, TRACER, LabelIndex, background, process

_UNKNOWN_PROCESS = "(unknown)"


@dataclass(frozen=True)
class OwnerGroups:
    """Group of every owner outside queries, looked up by owner id."""

    ids: I64  #: sorted
    group: I64
    of_server: Bool  #: runs for a traced server that has queries, inside or outside of a query
    unknown: int  #: group of owners that were never announced

    def numbered(self, owner: U32) -> tuple[U32, GroupsById]:
        """Numbers for some owners, and the group of each number; marked if it runs for a traced
        server. Owners that are not known have the last entry, or a number beyond it."""
        if self._by_id is not None:
            return owner, self._by_id
        at = np.searchsorted(self.ids, owner)
        at = np.where(np.append(self.ids, -1)[at] == owner, at, len(self.ids))
        return at.astype(np.uint32), self._by_place

    @cached_property
    def _by_place(self) -> GroupsById:
        """Groups by place in `ids`."""
        return GroupsById(0, np.append(self.group, self.unknown), np.append(self.of_server, False))

    @cached_property
    def _by_id(self) -> GroupsById | None:
        """Groups by id, if ids are consecutive numbers as qjoule assigns them; else None."""
        size = int(self.ids.max(initial=-1)) + 2
        if size > 2 * len(self.ids) + 1024 or int(self.ids.min(initial=0)) < 0:
            return None
        group, marked = np.full(size, self.unknown, np.int64), np.zeros(size, bool)
        group[self.ids], marked[self.ids] = self.group, self.of_server
        return GroupsById(0, group, marked)


def group_owners(
    owners: pa.Table,
    server_name: Callable[[int | None], str],
    index: LabelIndex,
    by_thread: Collection[int] = (),
) -> OwnerGroups:
    """Background by server and thread role, other processes by name; new labels go to `index`.

    `by_thread`: ids of servers that have no queries. They do not affect coverage.

    A query's thread without a query record (lost, or waiting for its next request) is background.
    """
    from qjoule.servers.decoding import causes_of  # noqa: PLC0415 - all servers' texts, with it

    columns = ["owner", "kind", "server", "role", "comm", "process_comm"]
    rows = sorted(owners.select(columns).to_pylist(), key=lambda row: int(row["owner"]))
    groups, of_server = [], []
    for row in rows:
        kind = row["kind"]
        without_queries = row["server"] in by_thread
        of_server.append(kind in ("query", "server") and not without_queries)
        if kind in ("query", "server"):
            role = row["role"] or row["comm"] or _UNKNOWN_PROCESS
            name = server_name(row["server"])
            if without_queries:
                label = background(name, role, BY_THREAD)
            else:
                label = background(name, role, flags=causes_of(role))
        elif kind == "kernel":
            label = KERNEL
        elif kind == "tracer":
            label = TRACER
        else:
            untraced = row["role"] if kind == "process" else None
            label = process(untraced or row["process_comm"] or row["comm"] or _UNKNOWN_PROCESS)
        groups.append(index.number(label))
    unknown = index.number(process(_UNKNOWN_PROCESS))
    return OwnerGroups(
        np.array([row["owner"] for row in rows], np.int64),
        np.array(groups, np.int64),
        np.array(of_server, bool),
        unknown,
    )
