# SPDX-License-Identifier: Apache-2.0
"""Decides which keys have a series of their own, because clients and local users choose the keys.

Membership is sticky. A member keeps its place until it was not seen for a lifetime and another key
needs the place. Taking the largest at each scrape instead would bring new series with every scrape.
A key becomes a member when it was seen in two intervals, so statements that never come again add no
series.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

#: Keys that are remembered without being members; the oldest are forgotten.
MAX_CANDIDATES = 4096
INTERVALS_SEEN = 2

K = TypeVar("K", bound=Hashable)


class Admission(Generic[K]):
    """At most `limit` members. `lifetime_s`: in the stream's time, which no clock step changes."""

    def __init__(self, limit: int, lifetime_s: float) -> None:
        self.limit, self.lifetime_s = limit, lifetime_s
        self._members: dict[K, float] = {}  #: when last seen; least recently seen first
        self._seen: dict[K, int] = {}  #: in how many intervals, of others

    def __contains__(self, key: K) -> bool:
        return key in self._members

    def __len__(self) -> int:
        return len(self._members)

    def admit(self, weights: Mapping[K, int], now_s: float) -> list[K]:
        """Takes the keys of an interval; those of most weight first. Returns who had to leave."""
        gone = [self._oldest() for _ in range(len(self._members) - self.limit)]
        ready = []
        for key in weights:
            if key in self._members:
                self._see(key, now_s)
            elif (times := self._seen.pop(key, 0) + 1) >= INTERVALS_SEEN:
                ready.append(key)
            else:
                self._seen[key] = times
        for key in sorted(ready, key=lambda candidate: (-weights[candidate], repr(candidate))):
            if len(self._members) < self.limit:
                self._see(key, now_s)
            elif self._members and self._expired(now_s):
                gone.append(self._oldest())
                self._see(key, now_s)
            else:
                self._seen[key] = INTERVALS_SEEN
        for key in list(self._seen)[: max(0, len(self._seen) - MAX_CANDIDATES)]:
            del self._seen[key]
        return gone

    def restore(self, members: Iterable[K], now_s: float) -> None:
        """Members of an agent before this one."""
        for key in members:
            self._see(key, now_s)

    def _expired(self, now_s: float) -> bool:
        return now_s - next(iter(self._members.values())) > self.lifetime_s

    def _see(self, key: K, now_s: float) -> None:
        self._members.pop(key, None)
        self._members[key] = now_s

    def _oldest(self) -> K:
        key = next(iter(self._members))
        del self._members[key]
        return key
