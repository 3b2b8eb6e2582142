# SPDX-License-Identifier: Apache-2.0
"""Estimates the offsets between hosts' clocks from requests that they share.

Two constraints bound the offset of a host B from a host A. A query that B ran for a call of a
client on A lies within that call. And all queries of a request lie within the maximum duration of a
request. Each shared request gives an interval. The offset is where most of them overlap (Marzullo's
algorithm: K. Marzullo, "Maintaining the Time in a Distributed System", 1984; NTP selects clocks by
it). If fewer than half overlap, the offset is unknown.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

#: Maximum number of stored bounds of two hosts: the closest ones.
MOST_BOUNDS = 4096
CALLS, REQUESTS = "calls", "requests"  #: kinds of bounds on an offset


class Span(NamedTuple):
    """From the begin of the first query to the end of the last, by a host's clock; ns."""

    begin_ns: int
    end_ns: int


class Bound(NamedTuple):
    """Bounds of an offset; ns."""

    low_ns: int
    high_ns: int


@dataclass(frozen=True)
class Offset:
    """Offset of a host's clock from the reference host's (positive: ahead), within `low_ns` and
    `high_ns`.

    `agree` of `shared` requests confirm it. `by`: the kind of bounds; `through`: the host through
    which the offset is known. Not `bounded` if the hosts share no requests, or most disagree.
    """

    bounded: bool
    low_ns: int = 0
    high_ns: int = 0
    shared: int = 0
    agree: int = 0
    by: str = ""
    through: str = ""

    @property
    def middle_ns(self) -> int:
        return (self.low_ns + self.high_ns) // 2


def call_bound(call: Span, query: Span) -> Bound | None:
    """Bounds how far the server's clock is ahead of the client's; None if the query took longer
    than the call."""
    low, high = query.end_ns - call.end_ns, query.begin_ns - call.begin_ns
    return Bound(low, high) if low <= high else None


def request_bound(first: Span, second: Span, longest_ns: int) -> Bound | None:
    """Bounds how far `second`'s clock is ahead of `first`'s, if both lie within `longest_ns`."""
    low = second.end_ns - first.begin_ns - longest_ns
    high = second.begin_ns - first.end_ns + longest_ns
    return Bound(low, high) if low <= high else None


def agreed(bounds: Sequence[Bound]) -> tuple[Bound, int]:
    """Returns the interval that is in most of the bounds (at least one), and in how many.

    Returns the first of several such intervals.
    """
    edges = sorted(
        [(bound.low_ns, 0) for bound in bounds] + [(bound.high_ns, 1) for bound in bounds]
    )
    best = now = 0
    most_agreed = Bound(0, 0)
    for number, (at_ns, closes) in enumerate(edges):
        if closes:
            now -= 1
            continue
        now += 1
        if now > best:
            best = now
            most_agreed = Bound(at_ns, next(t_ns for t_ns, end in edges[number + 1 :] if end))
    return most_agreed, best


@dataclass
class Pairs:
    """The bounds of each pair of hosts, collected in any order, in bounded memory."""

    longest_ns: int
    #: By (host, other host, kind), a heap of the narrowest bounds; widths are negative.
    _heaps: dict[tuple[str, str, str], list[tuple[int, int, int]]] = field(default_factory=dict)
    _count: dict[tuple[str, str, str], int] = field(default_factory=dict)

    def add(
        self,
        requests: Mapping[str, Span],
        calls: Iterable[tuple[str, Span, str, Span]] = (),
    ) -> None:
        """Adds a shared request: the span of its queries by host. `calls`: a client's host and
        call, and the server's host and query."""
        hosts = sorted(requests)
        for number, host in enumerate(hosts):
            for other in hosts[number + 1 :]:
                bound = request_bound(requests[host], requests[other], self.longest_ns)
                self._keep(host, other, REQUESTS, bound)
        for client, call, server, query in calls:
            if client != server:
                self._keep(client, server, CALLS, call_bound(call, query))

    def _keep(self, first: str, second: str, by: str, bound: Bound | None) -> None:
        if first > second:
            first, second = second, first
            bound = bound and Bound(-bound.high_ns, -bound.low_ns)
        key = (first, second, by)
        self._count[key] = self._count.get(key, 0) + 1
        if bound is None:
            return
        heap = self._heaps.setdefault(key, [])
        item = (bound.low_ns - bound.high_ns, bound.low_ns, bound.high_ns)
        if len(heap) < MOST_BOUNDS:
            heapq.heappush(heap, item)
        elif item > heap[0]:
            heapq.heapreplace(heap, item)

    def between(self) -> dict[tuple[str, str], Offset]:
        """Returns, for pairs of hosts in order of name, how far the second clock is ahead of the
        first."""
        offsets_by_pair: dict[tuple[str, str], Offset] = {}
        for (first, second, by), shared in sorted(self._count.items(), key=lambda item: item[0]):
            heap = self._heaps.get((first, second, by), [])
            bound, agree = agreed([Bound(*item[1:]) for item in heap]) if heap else (Bound(0, 0), 0)
            majority = 2 * agree > min(shared, MOST_BOUNDS)
            offset = Offset(majority, bound.low_ns, bound.high_ns, shared, agree, by)
            before = offsets_by_pair.get((first, second))
            # Bounds from calls are preferred to those from requests, as they are closer.
            if before is None or not before.bounded:
                offsets_by_pair[first, second] = (
                    offset if majority else Offset(False, 0, 0, shared, agree, by)
                )
        return offsets_by_pair


def reference_of(hosts: Iterable[str], pairs: Mapping[tuple[str, str], Offset]) -> str:
    """Returns the host that shares most requests with others; among equals the first by name."""
    shared = dict.fromkeys(sorted(hosts), 0)
    for (first, second), offset in pairs.items():
        for host in (first, second):
            shared[host] = shared.get(host, 0) + (offset.shared if offset.bounded else 0)
    return max(shared, key=lambda host: shared[host])  # the first of equal ones


def offsets(hosts: Iterable[str], pairs: Mapping[tuple[str, str], Offset]) -> dict[str, Offset]:
    """Returns each host's offset from the reference host, along the most closely bounded pairs."""
    hosts = sorted(hosts)
    reference = reference_of(hosts, pairs)
    from_reference = {reference: Offset(True, 0, 0, 0, 0, "reference")}
    links: dict[str, list[tuple[str, Offset, int]]] = {}
    for (first, second), offset in pairs.items():
        if offset.bounded:
            links.setdefault(first, []).append((second, offset, 1))
            links.setdefault(second, []).append((first, offset, -1))
    ahead: list[tuple[int, str]] = [(0, reference)]
    done = set()
    while ahead:
        _, host = heapq.heappop(ahead)
        if host in done:
            continue
        done.add(host)
        for second, link, sign in links.get(host, ()):
            low, high = (link.low_ns, link.high_ns)[::sign]
            base = from_reference[host]
            sum_ns = (base.low_ns + sign * low, base.high_ns + sign * high)
            width = sum_ns[1] - sum_ns[0]
            current = from_reference.get(second)
            if second in done or (current and current.high_ns - current.low_ns <= width):
                continue
            through = "" if host == reference else host
            from_reference[second] = Offset(
                True, *sum_ns, link.shared, link.agree, link.by, through
            )
            heapq.heappush(ahead, (width, second))
    return {host: from_reference.get(host) or _direct(host, reference, pairs) for host in hosts}


def _direct(host: str, reference: str, pairs: Mapping[tuple[str, str], Offset]) -> Offset:
    first, second = sorted((host, reference))
    return pairs.get((first, second), Offset(False))
