# SPDX-License-Identifier: Apache-2.0
"""Ends of calls that were reported separately from their begins. Memory is bounded."""

from __future__ import annotations

from collections import Counter

#: Bound for all calls together.
MAX_ENDS = 100_000


class Ends:
    """Ends by application and call. If there are too many, the user with the most loses the
    oldest.
    """

    def __init__(self, most: int = MAX_ENDS) -> None:
        self._most = most
        self._all: dict[int, dict[tuple[int, int], int]] = {}  #: by user
        self._counts: Counter[int] = Counter()
        self._number = 0

    def __bool__(self) -> bool:
        return self._number > 0

    def add(self, uid: int, application: int, call: int, t_ns: int) -> None:
        """Records that the call ended at this time."""
        ends = self._all.setdefault(uid, {})
        before = len(ends)
        ends[application, call] = t_ns
        added = len(ends) - before
        self._number += added
        self._counts[uid] += added
        if self._number > self._most:
            biggest = max(self._counts, key=lambda one: self._counts[one])
            ends = self._all[biggest]
            ends.pop(next(iter(ends)))
            self._number -= 1
            self._counts[biggest] -= 1
            if not ends:
                del self._all[biggest], self._counts[biggest]

    def of(self, uid: int, application: int, call: int) -> int:
        """When the call ended; 0: unknown."""
        ends = self._all.get(uid)
        return ends.get((application, call), 0) if ends else 0
