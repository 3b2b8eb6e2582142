# SPDX-License-Identifier: Apache-2.0
"""How far the clocks of hosts are apart, from requests that they share.

Two things bound the offset of a host B from a host A. A query that B ran for a call of a client on
A lies within that call. And all queries of a request lie within the time that a request takes at
most. Each shared request gives an interval. The offset is where most of them overlap (Marzullo's
algorithm: K. Marzullo, "Maintaining the Time in a Distributed System", 1984; NTP selects clocks by
it). If that is not most of them, the offset cannot be told.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

#: Shared requests of two hosts that are kept: those that bound most closely.
MOST_BOUNDS = 4096
CALLS, REQUESTS = "calls", "requests"  #: what bounds an offset


class Span(NamedTuple):
    """From the begin of the first query to the end of the last, by a host's clock; ns."""

    begin_ns: int
    end_ns: int


class Bound(NamedTuple):
    """An offset lies within it; ns."""

    low_ns: int
    high_ns: int


@dataclass(frozen=True)
class Offset:
    """How far a host's clock is ahead of the reference host's: within `low_ns` and `high_ns`.

    `agree` of `shared` requests bear it out. `by`: what bounds it, or the host through which it is
    known. Not `told`: no bound, because the hosts share no requests, or most disagree.
    """

    told: bool
    low_ns: int = 0
    high_ns: int = 0
    shared: int = 0
    agree: int = 0
    by: str = ""
    through: str = ""

    @property
    def middle_ns(self) -> int:
        return (self.low_ns + self.high_ns) // 2


def of_call(call: Span, query: Span) -> Bound | None:
    """How far the server's clock is ahead of the client's; None: the query took longer than the
    call."""
    low, high = query.end_ns - call.end_ns, query.begin_ns - call.begin_ns
    return Bound(low, high) if low <= high else None


def of_request(one: Span, other: Span, longest_ns: int) -> Bound | None:
    """How far `other`'s clock is ahead of that of `one`, if both are within `longest_ns`."""
    low = other.end_ns - one.begin_ns - longest_ns
    high = other.begin_ns - one.end_ns + longest_ns
    return Bound(low, high) if low <= high else None


def agreed(bounds: Sequence[Bound]) -> tuple[Bound, int]:
    """The interval that most of the bounds contain, and how many do; there must be one.

    Of several such intervals the first.
    """
    edges = sorted([(one.low_ns, 0) for one in bounds] + [(one.high_ns, 1) for one in bounds])
    best = now = 0
    found = Bound(0, 0)
    for number, (at_ns, closes) in enumerate(edges):
        if closes:
            now -= 1
            continue
        now += 1
        if now > best:
            best = now
            found = Bound(at_ns, next(t_ns for t_ns, end in edges[number + 1 :] if end))
    return found, best


@dataclass
class Pairs:
    """The bounds of each pair of hosts, collected in any order, in bounded memory."""

    longest_ns: int
    #: By (host, other host, what bounds), a heap of the narrowest; widths are negative.
    _kept: dict[tuple[str, str, str], list[tuple[int, int, int]]] = field(default_factory=dict)
    _count: dict[tuple[str, str, str], int] = field(default_factory=dict)

    def add(
        self,
        requests: Mapping[str, Span],
        calls: Iterable[tuple[str, Span, str, Span]] = (),
    ) -> None:
        """One shared request: the span of its queries by host; `calls`: a client's host and its
        call, the server's host and its query."""
        hosts = sorted(requests)
        for number, one in enumerate(hosts):
            for other in hosts[number + 1 :]:
                bound = of_request(requests[one], requests[other], self.longest_ns)
                self._keep(one, other, REQUESTS, bound)
        for client, call, server, query in calls:
            if client != server:
                self._keep(client, server, CALLS, of_call(call, query))

    def _keep(self, one: str, other: str, by: str, bound: Bound | None) -> None:
        if one > other:
            one, other = other, one
            bound = bound and Bound(-bound.high_ns, -bound.low_ns)
        key = (one, other, by)
        self._count[key] = self._count.get(key, 0) + 1
        if bound is None:
            return
        kept = self._kept.setdefault(key, [])
        item = (bound.low_ns - bound.high_ns, bound.low_ns, bound.high_ns)
        if len(kept) < MOST_BOUNDS:
            heapq.heappush(kept, item)
        elif item > kept[0]:
            heapq.heapreplace(kept, item)

    def between(self) -> dict[tuple[str, str], Offset]:
        """For pairs of hosts in order of name, how far the second is ahead of the first."""
        found: dict[tuple[str, str], Offset] = {}
        for (one, other, by), shared in sorted(self._count.items(), key=lambda item: item[0]):
            kept = self._kept.get((one, other, by), [])
            bound, agree = agreed([Bound(*item[1:]) for item in kept]) if kept else (Bound(0, 0), 0)
            told = 2 * agree > min(shared, MOST_BOUNDS)
            offset = Offset(told, bound.low_ns, bound.high_ns, shared, agree, by)
            before = found.get((one, other))
            # What calls tell is used before what requests tell.
            if before is None or not before.told:
                found[one, other] = offset if told else Offset(False, 0, 0, shared, agree, by)
        return found


def reference_of(hosts: Iterable[str], pairs: Mapping[tuple[str, str], Offset]) -> str:
    """The host that shares most requests with others; of equal ones the first by name."""
    shared = dict.fromkeys(sorted(hosts), 0)
    for (one, other), offset in pairs.items():
        for host in (one, other):
            shared[host] = shared.get(host, 0) + (offset.shared if offset.told else 0)
    return max(shared, key=lambda host: shared[host])  # the first of equal ones


def offsets(hosts: Iterable[str], pairs: Mapping[tuple[str, str], Offset]) -> dict[str, Offset]:
    """Each host's offset from the reference host, along the pairs that bound it most closely."""
    hosts = sorted(hosts)
    reference = reference_of(hosts, pairs)
    found = {reference: Offset(True, 0, 0, 0, 0, "reference")}
    links: dict[str, list[tuple[str, Offset, int]]] = {}
    for (one, other), offset in pairs.items():
        if offset.told:
            links.setdefault(one, []).append((other, offset, 1))
            links.setdefault(other, []).append((one, offset, -1))
    ahead: list[tuple[int, str]] = [(0, reference)]
    done = set()
    while ahead:
        _, host = heapq.heappop(ahead)
        if host in done:
            continue
        done.add(host)
        for other, link, sign in links.get(host, ()):
            low, high = (link.low_ns, link.high_ns)[::sign]
            base = found[host]
            sum_ns = (base.low_ns + sign * low, base.high_ns + sign * high)
            width = sum_ns[1] - sum_ns[0]
            known = found.get(other)
            if other in done or (known and known.high_ns - known.low_ns <= width):
                continue
            through = "" if host == reference else host
            found[other] = Offset(True, *sum_ns, link.shared, link.agree, link.by, through)
            heapq.heappush(ahead, (width, other))
    return {host: found.get(host) or _untold(host, reference, pairs) for host in hosts}


def _untold(host: str, reference: str, pairs: Mapping[tuple[str, str], Offset]) -> Offset:
    one, other = sorted((host, reference))
    return pairs.get((one, other), Offset(False))
