# SPDX-License-Identifier: Apache-2.0
"""One life of a thread, and what it was called in it."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

import numpy as np

from qjoule.trace.columns import Array
from qjoule.trace.roles import thread_role
from qjoule.trace.schema import UNKNOWN_COMM

#: Until then a thread has the name of the one that began it, and the next one is its first.
NAMING_NS = 100_000_000
NAMES_MAX = 64  #: of one life that are told apart: names may be anything


@dataclass(slots=True)
class Name:
    """What a thread is called for some time."""

    comm: str = UNKNOWN_COMM
    role: str = ""  #: its name while it was a server's thread, before it ran another program
    role_before: str = ""
    owners: dict[tuple[int, int], int] = field(default_factory=dict)  #: (kind, server) to id


@dataclass(slots=True)
class Life:
    """`begin_ns` None: before anything that is known of it.

    `settled`: its beginning was announced, by a fork or because it was alive before the trace.
    """

    pid: int
    tgid: int
    begin_ns: int | None
    settled: bool = False
    end_ns: int | None = None
    first_seen_ns: int | None = None
    used: int = 0  #: in which batch of segments it was last met, from 1
    names: list[Name] = field(default_factory=lambda: [Name()])  #: by time; one may come again
    since_ns: list[int] = field(default_factory=list)  #: when each was taken, but for the first
    by_role: dict[str, Name] = field(default_factory=dict)  #: if there were several

    @property
    def name(self) -> Name:
        """The last."""
        return self.names[-1]

    @property
    def is_servers(self) -> bool:
        """Whether it was a server's thread, at some time."""
        return any(name.role or any(server for _, server in name.owners) for name in self.all_names)

    @property
    def all_names(self) -> list[Name]:
        return list(self.by_role.values()) or self.names

    def rename(self, t_ns: int, comm: str, process_comm: str) -> bool:
        """Whether this is a name for other work, which it then bears from there on.

        It is not if only a number in it is another, or if it is the first that a young thread is
        given. A process is renamed when it runs a program, which is announced by itself.
        """
        name = self.name
        if comm == name.comm or UNKNOWN_COMM in (name.comm, comm or UNKNOWN_COMM):
            return False
        is_young = self.begin_ns is not None and t_ns < self.begin_ns + NAMING_NS
        if self.pid == self.tgid or (is_young and not self.by_role):
            return False
        role, before = thread_role(comm, process_comm), thread_role(name.comm, process_comm)
        known = self.by_role or {before: name}
        if role == before or (role not in known and len(known) >= NAMES_MAX):
            return False
        place = bisect_right(self.since_ns, t_ns)
        self.since_ns.insert(place, t_ns)
        self.names.insert(place + 1, known.setdefault(role, Name(comm, comm)))
        self.by_role = known
        return True

    def is_one(self, since_ns: int) -> bool:
        """Whether it has begun by then, and has had one name only since."""
        if self.begin_ns is not None and self.begin_ns > since_ns:
            return False
        return not self.since_ns or self.since_ns[-1] <= since_ns

    def called(self, t_ns: Array) -> Array:
        """Which of `names` it bore at each of some times."""
        return np.searchsorted(np.array(self.since_ns, np.int64), t_ns.astype(np.int64), "right")

    def forget(self, before_ns: int) -> None:
        """Drops what it was called only before then."""
        gone = bisect_right(self.since_ns, before_ns)
        del self.since_ns[:gone], self.names[:gone]
