# SPDX-License-Identifier: Apache-2.0
"""How many applications a recorder meets: no user can keep the others' out, or use up its room."""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from qjoule.tags.application import Application, Process

MAX_PROCESSES = 1024
#: A process has one ring; after a fork or an exec it may look as if it had several for a moment.
MAX_OF_PROCESS = 16
#: Connections of one user's that have not greeted.
MAX_SILENT = 64
#: Bytes that are remembered of all together: their definitions, and these with the rings' ends.
MAX_DEFINED = 64 << 20
MAX_BYTES = 256 << 20
#: Descriptors of an application: its socket, and its ring's while that is mapped.
_DESCRIPTORS = 2
#: Descriptors that no application gets: the recorder opens files as long as it runs.
_RESERVED = 256


def room() -> int:
    """How many applications there are descriptors for; raises the limit of this process if need be.

    A process that it starts later inherits the limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MAX_PROCESSES
    wanted = _RESERVED + _DESCRIPTORS * MAX_PROCESSES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return min(MAX_PROCESSES, (soft - min(_RESERVED, soft // 2)) // _DESCRIPTORS)


class Crowd:
    """The applications that have been met and not let go, in the order of their turns."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._all: list[Application] = []
        self._of_user: Counter[int] = Counter()
        self._of_process: Counter[int] = Counter()
        self._silent: Counter[int] = Counter()

    def __iter__(self) -> Iterator[Application]:
        return iter(tuple(self._all))

    def add(self, application: Application) -> None:
        """One that has room."""
        self._all.append(application)
        self._of_user[application.uid] += 1
        self._of_process[application.pid] += 1
        self._silent[application.uid] += 1

    def greeted(self, application: Application) -> None:
        """It has handed over its ring."""
        self._silent[application.uid] -= 1

    def remove(self, application: Application) -> None:
        """It has been let go."""
        self._all.remove(application)
        silent = application.ring is None
        counts = ((self._of_user, application.uid, True), (self._of_process, application.pid, True))
        for count, key, was_counted in (*counts, (self._silent, application.uid, silent)):
            count[key] -= was_counted
            if not count[key]:
                del count[key]

    def put_first(self, applications: Iterable[Application]) -> None:
        """The next turn begins with these."""
        first = list(applications)
        behind = {application.number for application in first}
        self._all = first + [one for one in self._all if one.number not in behind]

    def may_come(self, process: Process) -> bool:
        """Whether this process may have one more connection, if there is room."""
        if process.pid and self._of_process[process.pid] >= MAX_OF_PROCESS:
            return False
        return self._silent[process.uid] < MAX_SILENT

    def in_the_way(self, uid: int) -> Application | None:
        """Who has to go so that another one of this user has room; raises KeyError if nobody may.

        That is the last one that came of the user who has the most, if that is more than this user
        would have then; one that has not greeted first.
        """
        if len(self._all) < self._most:
            return None
        biggest, number = self._of_user.most_common(1)[0]
        if number <= self._of_user[uid] + 1:
            raise KeyError(uid)
        its = [one for one in self._all if one.uid == biggest]
        return max(its, key=lambda one: (one.ring is None, one.number))

    def too_much(self) -> Application | None:
        """Who has to go because too much is remembered: of the user with the most, the biggest."""
        defined = [one.definitions.bytes for one in self._all]
        if sum(defined) > MAX_DEFINED:
            return self._biggest(defined)
        of_all = [one.bytes for one in self._all]
        return self._biggest(of_all) if sum(of_all) > MAX_BYTES else None

    def _biggest(self, weights: Sequence[int]) -> Application:
        of_user: Counter[int] = Counter()
        for one, weight in zip(self._all, weights, strict=True):
            of_user[one.uid] += weight
        user = of_user.most_common(1)[0][0]
        its = [at for at, one in enumerate(self._all) if one.uid == user]
        return self._all[max(its, key=lambda at: weights[at])]
