# SPDX-License-Identifier: Apache-2.0
"""Joins the records of one request from several hosts, bucket by bucket.

Joules of different grades or idle policies are never added: such a request has a row for each. If
an id was reused for queries far apart in time, each use has a row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa

from qjoule.api.model import EnergyErrors, RowErrors, of_recordings
from qjoule_fleet.requests.clocks import Offset, Pairs, Span
from qjoule_fleet.requests.extract import ERRORS

#: Flags of rows.
REUSED = "id_reused"  #: the id's queries are too far apart to be one request
CLOCK = "clock_unknown"  #: the clocks of the hosts cannot be compared
GRADES = "several_grades"  #: the request has a row for each grade or policy
MISSING = "server_missing"  #: a client called a server that is in no trace


class TotalError(NamedTuple):
    """The largest relative 95 % error of the traces' totals, and whether the rows' intervals
    include it."""

    relative: float = 0.0
    in_rows: bool = False


@dataclass(frozen=True)
class ServerPart:
    """The part of a request on one server. `ends_nj`: its 95 % interval."""

    trace: str
    host: str
    server: str
    energy_nj: int
    ends_nj: tuple[float, float]
    cpu_ns: int
    calls: int


@dataclass(frozen=True)
class Request:
    """One request, or its part of one grade and policy. `ends_nj`: its 95 % interval. Times are ns
    since 1970, by the reference host's clock; None if unknown."""

    id: str
    grade: str
    policy: str
    energy_nj: int
    ends_nj: tuple[float, float]
    cpu_ns: int
    calls: int
    parts: tuple[ServerPart, ...]
    total: TotalError
    begin_ns: int | None = None
    end_ns: int | None = None
    flags: tuple[str, ...] = ()

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(sorted({part.host for part in self.parts}))


def spans_by_id(calls: pa.Table | None) -> dict[str, list[dict[str, Any]]]:
    """Returns the rows of a bucket of calls, by id."""
    rows_by_id: dict[str, list[dict[str, Any]]] = {}
    for row in calls.to_pylist() if calls is not None else ():
        rows_by_id.setdefault(row["id"], []).append(row)
    return rows_by_id


def add_bounds(calls: pa.Table | None, pairs: Pairs) -> None:
    """Adds bounds of the hosts' clocks from the requests in a bucket that hosts share."""
    for rows in spans_by_id(calls).values():
        by_host = _by_host(rows)
        if len(by_host) > 1:
            pairs.add(by_host, _calls(rows))


def _by_host(rows: Sequence[Mapping[str, Any]]) -> dict[str, Span]:
    """Returns the span from the first begin to the last end on each host."""
    spans: dict[str, Span] = {}
    for row in rows:
        span = spans.get(row["host"], Span(row["begin_ns"], row["end_ns"]))
        spans[row["host"]] = Span(min(span[0], row["begin_ns"]), max(span[1], row["end_ns"]))
    return spans


def _calls(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Span, str, Span]]:
    """Pairs a client's call with the server's query if a span has one of each."""
    by_span: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["span"]:
            by_span.setdefault(row["span"], []).append(row)
    for same in by_span.values():
        clients = [row for row in same if row["client"]]
        servers = [row for row in same if not row["client"]]
        if len(clients) == 1 and len(servers) == 1:
            (client,), (server,) = clients, servers
            call = Span(client["begin_ns"], client["end_ns"])
            yield client["host"], call, server["host"], Span(server["begin_ns"], server["end_ns"])


def requests(
    costs: pa.Table | None,
    calls: pa.Table | None,
    offsets: Mapping[str, Offset],
    longest_ns: int,
    errors: Mapping[str, TotalError],
) -> Iterator[Request]:
    """Yields the requests of a bucket. `errors`: by grade."""
    spans = spans_by_id(calls)
    by_id: dict[str, list[dict[str, Any]]] = {}
    for row in costs.to_pylist() if costs is not None else ():
        by_id.setdefault(row["id"], []).append(row)
    for request_id in sorted(by_id):
        mine = spans.get(request_id, [])
        yield from _requests_of_id(
            request_id, by_id[request_id], mine, offsets, longest_ns=longest_ns, errors=errors
        )


def _requests_of_id(
    request_id: str,
    costs: Sequence[Mapping[str, Any]],
    calls: Sequence[Mapping[str, Any]],
    offsets: Mapping[str, Offset],
    *,
    longest_ns: int,
    errors: Mapping[str, TotalError],
) -> Iterator[Request]:
    by_host = _by_host(calls)
    hosts = {row["host"] for row in costs}
    clocks_known = all(offsets[host].bounded and host in by_host for host in hosts)
    flags = set() if clocks_known or len(hosts) < 2 else {CLOCK}
    spans_missing = {row["span"] for row in calls if row["client"]} - {
        row["span"] for row in calls if not row["client"]
    }
    if spans_missing:
        flags.add(MISSING)
    long = any(span.end_ns - span.begin_ns > longest_ns for span in by_host.values())
    uses = _split_uses(by_host, hosts, offsets, longest_ns) if clocks_known else [hosts]
    if long or len(uses) > 1:
        flags.add(REUSED)
    for use in uses:
        mine = [row for row in costs if row["host"] in use]
        kinds = sorted({(row["grade"], row["policy"]) for row in mine})
        more = {GRADES} if len(kinds) > 1 else set()
        span = _total_span(by_host, use, offsets) if clocks_known or len(use) == 1 else (None, None)
        for grade, policy in kinds:
            same = [row for row in mine if (row["grade"], row["policy"]) == (grade, policy)]
            request = _summed(request_id, grade, policy, same, errors[grade])
            yield replace(
                request, begin_ns=span[0], end_ns=span[1], flags=tuple(sorted(flags | more))
            )


def _summed(
    request_id: str, grade: str, policy: str, rows: Sequence[Mapping[str, Any]], total: TotalError
) -> Request:
    def ends(error: RowErrors, energy_nj: int) -> tuple[float, float]:
        low, high = error.ends(float(energy_nj), absolute=total.in_rows)
        return float(low), float(high)

    in_order = sorted(rows, key=lambda row: (row["host"], row["server"], row["trace"]))
    errors = [EnergyErrors(*(row[name] for name in ERRORS)) for row in in_order]
    parts = tuple(
        ServerPart(
            row["trace"],
            row["host"],
            row["server"],
            row["energy_nj"],
            ends(error, row["energy_nj"]),
            row["cpu_ns"],
            row["calls"],
        )
        for row, error in zip(in_order, errors, strict=True)
    )
    energy_nj = sum(part.energy_nj for part in parts)
    low, high = ends(of_recordings(errors), energy_nj)
    # No part is below 0, so the sums of all ends may be closer bounds.
    low = max(low, math.fsum(part.ends_nj[0] for part in parts))
    high = min(high, math.fsum(part.ends_nj[1] for part in parts))
    cpu_ns, calls = (sum(getattr(part, name) for part in parts) for name in ("cpu_ns", "calls"))
    return Request(request_id, grade, policy, energy_nj, (low, high), cpu_ns, calls, parts, total)


def _split_uses(
    by_host: Mapping[str, Span],
    hosts: set[str],
    offsets: Mapping[str, Offset],
    longest_ns: int,
) -> list[set[str]]:
    """Splits reused request ids: groups hosts whose queries lie within one request's time."""
    placed = []
    for host in sorted(hosts):
        offset = offsets[host]
        span = by_host[host]
        # As close to the others as the uncertainty of the clocks allows.
        placed.append((span.begin_ns - offset.high_ns, span.end_ns - offset.low_ns, host))
    placed.sort()
    uses: list[set[str]] = []
    end_ns = 0
    for low, high, host in placed:
        if not uses or low - end_ns > longest_ns:
            uses.append(set())
            end_ns = high
        uses[-1].add(host)
        end_ns = max(end_ns, high)
    return uses


def _total_span(
    by_host: Mapping[str, Span], hosts: set[str], offsets: Mapping[str, Offset]
) -> tuple[int | None, int | None]:
    """Returns the first begin and the last end, by the reference host's clock."""
    spans = [(by_host[host], offsets[host]) for host in hosts if host in by_host]
    if not spans or not all(offset.bounded for _, offset in spans):
        return None, None
    begins = [span.begin_ns - offset.middle_ns for span, offset in spans]
    return min(begins), max(span.end_ns - offset.middle_ns for span, offset in spans)
