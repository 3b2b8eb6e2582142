# SPDX-License-Identifier: Apache-2.0
"""Bounds the number of applications a recorder serves, so that no user can crowd out the others."""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from qjoule.tags.application import Application, Process

MAX_PROCESSES = 1024
#: A process has one ring. After a fork or an exec it may seem to have several for a moment.
MAX_OF_PROCESS = 16
#: Connections of one user that have not sent their ring.
MAX_SILENT = 64
#: Bytes stored for all applications: of their definitions, and of definitions plus ends of calls.
MAX_DEFINED = 64 << 20
MAX_BYTES = 256 << 20
#: Descriptors per application: its socket, and briefly its ring's.
_DESCRIPTORS = 2
#: Descriptors kept free: the recorder opens files as long as it runs.
_RESERVED = 256


def limit() -> int:
    """Returns how many applications there are descriptors for. Raises the limit if needed.

    Processes started later inherit the limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MAX_PROCESSES
    target = _RESERVED + _DESCRIPTORS * MAX_PROCESSES
    if hard != resource.RLIM_INFINITY:
        target = min(target, hard)
    if soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
        soft = target
    return min(MAX_PROCESSES, (soft - min(_RESERVED, soft // 2)) // _DESCRIPTORS)


class ConnectionLimiter:
    """The connected applications, in the order in which they are polled."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._all: list[Application] = []
        self._of_user: Counter[int] = Counter()
        self._of_process: Counter[int] = Counter()
        self._silent: Counter[int] = Counter()

    def __iter__(self) -> Iterator[Application]:
        return iter(tuple(self._all))

    def __len__(self) -> int:
        return len(self._all)

    def add(self, application: Application) -> None:
        """Adds an application for which there is room."""
        self._all.append(application)
        self._of_user[application.uid] += 1
        self._of_process[application.pid] += 1
        self._silent[application.uid] += 1

    def greeted(self, application: Application) -> None:
        """Notes that the application has sent its ring."""
        self._silent[application.uid] -= 1

    def remove(self, application: Application) -> None:
        """Removes an application that has been released."""
        self._all.remove(application)
        silent = application.ring is None
        counts = ((self._of_user, application.uid, True), (self._of_process, application.pid, True))
        for count, key, was_counted in (*counts, (self._silent, application.uid, silent)):
            count[key] -= was_counted
            if not count[key]:
                del count[key]

    def put_first(self, applications: Iterable[Application]) -> None:
        """Moves these applications to the front of the next turn."""
        first = list(applications)
        behind = {application.number for application in first}
        self._all = first + [
            application for application in self._all if application.number not in behind
        ]

    def may_connect(self, process: Process) -> bool:
        """Returns true if this process may have one more connection, if there is room."""
        if process.pid and self._of_process[process.pid] >= MAX_OF_PROCESS:
            return False
        return self._silent[process.uid] < MAX_SILENT

    def eviction_for(self, uid: int) -> Application | None:
        """Returns the application to evict to make room for one of this user. Raises KeyError if
        none.

        That is the newest application of the user with the most, if that user has more than this
        user will have. Applications without a ring go first.
        """
        if len(self._all) < self._most:
            return None
        biggest, number = self._of_user.most_common(1)[0]
        if number <= self._of_user[uid] + 1:
            raise KeyError(uid)
        its = [application for application in self._all if application.uid == biggest]
        return max(its, key=lambda application: (application.ring is None, application.number))

    def eviction_over_limit(self) -> Application | None:
        """Returns the application to evict if too much is stored: the biggest of the biggest
        user."""
        defined = [application.definitions.bytes for application in self._all]
        if sum(defined) > MAX_DEFINED:
            return self._biggest(defined)
        of_all = [application.bytes for application in self._all]
        return self._biggest(of_all) if sum(of_all) > MAX_BYTES else None

    def _biggest(self, weights: Sequence[int]) -> Application:
        of_user: Counter[int] = Counter()
        for application, weight in zip(self._all, weights, strict=True):
            of_user[application.uid] += weight
        user = of_user.most_common(1)[0][0]
        its = [at for at, application in enumerate(self._all) if application.uid == user]
        return self._all[max(its, key=lambda at: weights[at])]
