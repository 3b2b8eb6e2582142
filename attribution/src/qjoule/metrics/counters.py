# SPDX-License-Identifier: Apache-2.0
"""The counters: adds intervals up, in a bounded number of series.

`Admission` decides which keys have a series of their own, because clients and local users choose
the keys. Membership is sticky. A member keeps its place until it was not seen for a lifetime and
another key needs the place. Taking the largest at each scrape instead would bring new series with
every scrape. A key becomes a member when it was seen in two intervals, so statements that never
come again add no series.

What has no series of its own is counted in `other` of its server. The sum of a series that had to
leave goes to `retired`, so that the sum over all series stays the node's, and the rate of `other`
stays true.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from qjoule.metrics.interval import OTHER, Amounts, Interval, Owner, Query, Shape, Spent
from qjoule.shapes.shape import OtherId

#: Keys that are remembered without being members; the oldest are forgotten.
MAX_CANDIDATES = 4096
INTERVALS_SEEN = 2

K = TypeVar("K", bound=Hashable)


class Admission(Generic[K]):
    """At most `limit` members. `lifetime_s`: in the stream's time, which no clock step changes."""

    def __init__(self, limit: int, lifetime_s: float) -> None:
        self.limit, self.lifetime_s = limit, lifetime_s
        self._members: dict[K, float] = {}  #: when last seen; least recently seen first
        self._seen: dict[K, int] = {}  #: by key that is no member: number of intervals with it

    def __contains__(self, key: K) -> bool:
        return key in self._members

    def __len__(self) -> int:
        return len(self._members)

    def admit(self, weights: Mapping[K, int], now_s: float) -> list[K]:
        """Takes an interval's keys, those of most weight first. Returns the evicted members."""
        evicted = [self._oldest() for _ in range(len(self._members) - self.limit)]
        ready = []
        for key in weights:
            if key in self._members:
                self._mark_seen(key, now_s)
            elif (times := self._seen.pop(key, 0) + 1) >= INTERVALS_SEEN:
                ready.append(key)
            else:
                self._seen[key] = times
        for key in sorted(ready, key=lambda candidate: (-weights[candidate], repr(candidate))):
            if len(self._members) < self.limit:
                self._mark_seen(key, now_s)
            elif self._members and self._expired(now_s):
                evicted.append(self._oldest())
                self._mark_seen(key, now_s)
            else:
                self._seen[key] = INTERVALS_SEEN
        for key in list(self._seen)[: max(0, len(self._seen) - MAX_CANDIDATES)]:
            del self._seen[key]
        return evicted

    def restore(self, members: Iterable[K], now_s: float) -> None:
        """Restores the members of an earlier agent."""
        for key in members:
            self._mark_seen(key, now_s)

    def _expired(self, now_s: float) -> bool:
        return now_s - next(iter(self._members.values())) > self.lifetime_s

    def _mark_seen(self, key: K, now_s: float) -> None:
        self._members.pop(key, None)
        self._members[key] = now_s

    def _oldest(self) -> K:
        key = next(iter(self._members))
        del self._members[key]
        return key


RETIRED = "retired"  #: fingerprint of the sums of evicted series
#: Roles of a server's threads, and names of processes, with a series of their own.
MAX_NAMES = 60
_NAMED_OWNERS = ("background", "other_processes")


@dataclass(frozen=True)
class Limits:
    """`shapes` of each server have a series; a series unseen for `lifetime_s` may be replaced."""

    shapes: int = 100
    lifetime_s: float = 3600.0


@dataclass(slots=True)
class QuerySeries:
    """One shape's counters, since `created_s` (Unix time)."""

    created_s: float
    amounts: Amounts = field(default_factory=Amounts)
    text: str = ""
    attach_mode: str = ""
    ids: tuple[OtherId, ...] = ()


@dataclass(slots=True)
class OwnerSeries:
    created_s: float
    spent: Spent = field(default_factory=Spent)


class Counters:
    """All counters since `created_s`, a Unix time at which they were 0."""

    def __init__(self, limits: Limits, created_s: float) -> None:
        self.limits = limits
        self.created_s = created_s
        self.queries: dict[Shape, QuerySeries] = {}
        self.owners: dict[Owner, OwnerSeries] = {}
        self.node_nj: dict[tuple[str, str], int] = {}  #: by domain and grade
        self.loss: dict[str, int] = {}
        self.lost_cpu_ns = self.windows = self.unattributed = self.intervals = 0
        self.folded: dict[str, int] = {}  #: by server: shapes without a series, in all intervals
        self.named_cpu_ns: dict[str, tuple[int, int]] = {}  #: of the last interval
        self._shapes: dict[str, Admission[Shape]] = {}  #: by server
        self._names: dict[tuple[str, str], Admission[Owner]] = {}

    def take(self, interval: Interval, now_s: float, wall_s: float) -> Interval:
        """Adds an interval; returns it with the names of the series.

        `now_s`: the stream's time, `wall_s`: Unix time, for new series.
        """
        self._admit(interval, now_s, wall_s)
        folded = replace(interval, queries=self._queries(interval), owners=self._owners(interval))
        for shape, query in folded.queries.items():
            series = self._query_series(shape, wall_s)
            series.amounts.add(query.amounts)
            if query.text:
                series.text, series.attach_mode = query.text, query.attach_mode
                series.ids = query.ids or series.ids
        for owner, spent in folded.owners.items():
            self._owner_series(owner, wall_s).spent.add(spent)
        for domain, energy_nj in interval.node_nj.items():
            key = (domain, interval.grade)
            self.node_nj[key] = self.node_nj.get(key, 0) + energy_nj
        for cause, count in interval.loss.items():
            self.loss[cause] = self.loss.get(cause, 0) + count
        self.lost_cpu_ns += interval.lost_cpu_ns
        self.windows += interval.windows
        self.unattributed += interval.unattributed
        self.intervals += 1
        self.named_cpu_ns = dict(interval.named_cpu_ns)
        return folded

    def series_of(self, shape: Shape) -> Shape:
        """The series that a shape is counted in."""
        has_series = shape in self._shapes_of(shape.server)
        return shape if has_series else Shape(shape.server, "", OTHER)

    def set_limits(self, limits: Limits) -> None:
        """Applies from the next interval on."""
        self.limits = limits
        for shapes in self._shapes.values():
            shapes.limit, shapes.lifetime_s = limits.shapes, limits.lifetime_s
        for names in self._names.values():
            names.lifetime_s = limits.lifetime_s

    def restore_members(self) -> None:
        """Makes all series members; for counters that were just restored."""
        for shape in self.queries:
            if shape.fingerprint not in (OTHER, RETIRED):
                self._shapes_of(shape.server).restore([shape], 0.0)
        for owner in self.owners:
            if owner.kind in _NAMED_OWNERS and owner.name not in (OTHER, RETIRED):
                self._names_of(owner).restore([owner], 0.0)

    def _admit(self, interval: Interval, now_s: float, wall_s: float) -> None:
        """Decides who has a series from this interval on."""
        shapes: dict[str, dict[Shape, int]] = {server: {} for server in self._shapes}
        for shape, query in interval.queries.items():
            if query.named:
                shapes.setdefault(shape.server, {})[shape] = query.amounts.energy_nj
        for server, weights in shapes.items():
            for evicted_shape in self._shapes_of(server).admit(weights, now_s):
                self._retire(evicted_shape, wall_s)
        names: dict[tuple[str, str], dict[Owner, int]] = {}
        for owner, spent in interval.owners.items():
            if owner.kind in _NAMED_OWNERS:
                names.setdefault((owner.kind, owner.server), {})[owner] = spent.cpu_ns
        for weights_of in names.values():
            for evicted_owner in self._names_of(next(iter(weights_of))).admit(weights_of, now_s):
                series = self.owners.pop(evicted_owner, None)
                if series is not None:
                    self._owner_series(evicted_owner._replace(name=RETIRED), wall_s).spent.add(
                        series.spent
                    )

    def _retire(self, shape: Shape, wall_s: float) -> None:
        series = self.queries.pop(shape, None)
        if series is not None:
            retired = self._query_series(shape._replace(fingerprint=RETIRED, database=""), wall_s)
            retired.amounts.add(series.amounts)

    def _queries(self, interval: Interval) -> Mapping[Shape, Query]:
        folded: dict[Shape, Query] = {}
        for shape, query in interval.queries.items():
            if shape in self._shapes_of(shape.server):
                folded[shape] = query
                continue
            other = Shape(shape.server, "", OTHER)
            folded.setdefault(other, Query()).add(replace(query, text="", ids=(), named=False))
            if query.named:
                self.folded[shape.server] = self.folded.get(shape.server, 0) + 1
        return folded

    def _owners(self, interval: Interval) -> Mapping[Owner, Spent]:
        folded: dict[Owner, Spent] = {}
        for owner, spent in interval.owners.items():
            has_series = owner.kind not in _NAMED_OWNERS or owner in self._names_of(owner)
            folded.setdefault(owner if has_series else owner._replace(name=OTHER), Spent()).add(
                spent
            )
        return folded

    def _shapes_of(self, server: str) -> Admission[Shape]:
        if server not in self._shapes:
            self._shapes[server] = Admission(self.limits.shapes, self.limits.lifetime_s)
        return self._shapes[server]

    def _names_of(self, owner: Owner) -> Admission[Owner]:
        key = (owner.kind, owner.server)
        if key not in self._names:
            self._names[key] = Admission(MAX_NAMES, self.limits.lifetime_s)
        return self._names[key]

    def _query_series(self, shape: Shape, wall_s: float) -> QuerySeries:
        return self.queries.setdefault(shape, QuerySeries(wall_s))

    def _owner_series(self, owner: Owner, wall_s: float) -> OwnerSeries:
        return self.owners.setdefault(owner, OwnerSeries(wall_s))
