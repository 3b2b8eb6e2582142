# SPDX-License-Identifier: Apache-2.0
"""The counters as families of metrics.

Integers of nJ and ns become decimals of J and s without floating point, so the sum over a page is
as exact as what its reader makes of the digits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate

from qjoule.metrics.counters import Counters, QuerySeries
from qjoule.metrics.exposition import (
    EDGES,
    Family,
    Labels,
    Sample,
    by_label,
    count,
    decimal,
    gauge,
    seconds,
)
from qjoule.metrics.interval import Amounts, Shape, safe
from qjoule.model.call_outcomes import Waits
from qjoule.model.result import APPEARED


def counter_families(counters: Counters) -> Iterator[Family]:
    """The families of energy, queries and loss."""
    yield from _energy(counters)
    yield from _queries(counters)
    yield from _quality(counters)


def _energy(counters: Counters) -> Iterator[Family]:
    created = seconds(counters.created_s)
    yield Family(
        "qjoule_node_joules",
        "counter",
        "Energy of this machine by domain and grade. Domains overlap: never add them up.",
        "joules",
        [
            Sample((("domain", domain), ("grade", grade)), decimal(nj), created)
            for (domain, grade), nj in sorted(counters.node_nj.items())
        ],
    )
    owners = sorted(counters.owners.items())
    yield Family(
        "qjoule_owner_joules",
        "counter",
        "Energy by owner. Within a domain the owners add up to qjoule_node_joules_total.",
        "joules",
        [
            Sample(
                (("domain", domain), *_owner_labels(owner)), decimal(nj), seconds(series.created_s)
            )
            for owner, series in owners
            for domain, nj in sorted(series.spent.energy_nj.items())
        ],
    )
    yield Family(
        "qjoule_owner_cpu_seconds",
        "counter",
        "CPU time by owner; idle and lost time included.",
        "seconds",
        [
            Sample(_owner_labels(owner), decimal(series.spent.cpu_ns), seconds(series.created_s))
            for owner, series in owners
        ],
    )


def left_out_family(left_out: Mapping[str, str]) -> Family:
    """`left_out`: reasons by domain. Their figures are left out: they would make new series."""
    return Family(
        "qjoule_left_out",
        "info",
        "Domains and counters whose energy is in no other series.",
        samples=[
            Sample((("domain", safe(domain)), ("reason", _reason(why))), "1")
            for domain, why in sorted(left_out.items())
        ],
    )


def throttled_family(throttled: str) -> Family:
    """`throttled`: says that heat throttled CPUs. There is no sample if it is empty: heat
    throttled none, or the kernel does not count that.
    """
    return Family(
        "qjoule_cpu_throttled",
        "gauge",
        "1: heat throttled CPUs in the last minute. Absent: it did not, or no kernel counts it.",
        samples=[Sample((), "1")] if throttled else [],
    )


def _reason(why: str) -> str:
    return "appeared while tracing" if why == APPEARED else "shows an impossible power"


def _owner_labels(owner: tuple[str, str, str]) -> Labels:
    kind, server, name = owner
    return ("kind", kind), ("server", server), ("name", name)


#: Counters by statement: name, help, unit, and a statement's value; None: it is not known.
_BY_STATEMENT: tuple[tuple[str, str, str, Callable[[Amounts], str | None]], ...] = (
    (
        "qjoule_query_joules",
        "Energy of queries by statement. They add up to the owners of kind queries.",
        "joules",
        lambda of: decimal(of.energy_nj),
    ),
    (
        "qjoule_query_cpu_seconds",
        "CPU time of queries by statement.",
        "seconds",
        lambda of: decimal(of.cpu_ns),
    ),
    ("qjoule_query_calls", "Executions by statement.", "", lambda of: str(of.calls)),
    (
        "qjoule_query_errors",
        "Queries that ended with an error, by statement; absent where no end is known.",
        "",
        lambda of: str(of.outcomes.errors) if of.calls > of.outcomes.unanswered else None,
    ),
    (
        "qjoule_query_rows",
        "Rows that were returned or changed, by statement; absent where no number is known.",
        "",
        lambda of: str(of.outcomes.rows) if of.calls > of.outcomes.rowless else None,
    ),
)


def _queries(counters: Counters) -> Iterator[Family]:
    by_statement = [
        (_labels(shape), series, seconds(series.created_s))
        for shape, series in sorted(counters.queries.items())
    ]
    for name, about, unit, value in _BY_STATEMENT:
        values = [
            (labels, value(series.amounts), created) for labels, series, created in by_statement
        ]
        samples = [Sample(labels, of, created) for labels, of, created in values if of is not None]
        yield Family(name, "counter", about, unit, samples)
    yield from _uncounted_calls(counters)
    of_queries = [
        (labels, series.amounts.waits, created) for labels, series, created in by_statement
    ]
    of_helpers = [
        (labels, series.amounts.helpers, created) for labels, series, created in by_statement
    ]
    yield _waits(
        "qjoule_query_wait_seconds",
        "What queries waited for, by statement; absent where it is not recorded.",
        of_queries,
    )
    yield _waits(
        "qjoule_query_helper_wait_seconds",
        "Waits of parallel workers and other helpers of queries; absent where there were none.",
        [
            (labels, waits, created)
            for labels, waits, created in of_helpers
            if waits and waits.latency_ns
        ],
    )
    yield Family(
        "qjoule_query_latency_seconds",
        "histogram",
        "Latency of queries by statement.",
        "seconds",
        [_latency(labels, series, created) for labels, series, created in by_statement],
    )
    yield Family(
        "qjoule_query",
        "info",
        "Text of each statement, and the ids that other tools have for it.",
        samples=[
            Sample(_info(shape, series), "1") for shape, series in sorted(counters.queries.items())
        ],
    )


def _waits(name: str, about: str, by_labels: Iterable[tuple[Labels, Waits | None, str]]) -> Family:
    samples = [
        Sample((*labels, ("kind", kind)), decimal(getattr(waits, kind)), created)
        for labels, waits, created in by_labels
        if waits is not None
        for kind in Waits._fields[1:]
    ]
    return Family(name, "counter", about, "seconds", samples)


def _uncounted_calls(counters: Counters) -> Iterator[Family]:
    """Calls that the counters of errors and of rows leave out, by server."""
    created = seconds(counters.created_s)
    unanswered: dict[str, int] = {}
    rowless: dict[str, int] = {}
    for shape, series in counters.queries.items():
        outcomes = series.amounts.outcomes
        unanswered[shape.server] = unanswered.get(shape.server, 0) + outcomes.unanswered
        rowless[shape.server] = rowless.get(shape.server, 0) + outcomes.rowless
    for name, about, sums in (
        ("qjoule_unanswered_calls", "Calls of which it is not known how they ended.", unanswered),
        ("qjoule_rowless_calls", "Calls of which the number of rows is not known.", rowless),
    ):
        yield by_label(name, about, "server", sums, created)


def _labels(shape: Shape) -> Labels:
    return (
        ("server", shape.server),
        ("database", shape.database),
        ("fingerprint", shape.fingerprint),
    )


def _info(shape: Shape, series: QuerySeries) -> Labels:
    ids = {other_id.name: other_id.id for other_id in series.ids if other_id.id is not None}
    id_labels = tuple((label_name(name), safe(of)) for name, of in sorted(ids.items()))
    return (*_labels(shape), ("attach_mode", series.attach_mode), ("text", series.text), *id_labels)


def label_name(name: str) -> str:
    """The label for an id that a tool calls `name`: `queryid`, `digest`."""
    plain = "".join(c if c.isascii() and c.isalnum() else "_" for c in name.lower())
    return (
        plain if plain not in ("server", "database", "fingerprint", "text", "attach_mode") else "id"
    )


def _latency(labels: Labels, series: QuerySeries, created: str) -> Sample:
    amounts = series.amounts
    below = [0, *accumulate(amounts.latency)]
    buckets = tuple(below[edge] for edge in EDGES)
    octaves = tuple(map(sum, zip(amounts.latency[::2], amounts.latency[1::2], strict=True)))
    return Sample(labels, decimal(amounts.latency_ns), created, buckets, below[-1], octaves)


def _quality(counters: Counters) -> Iterator[Family]:
    created = seconds(counters.created_s)
    yield count("qjoule_windows", "Windows of energy that were divided.", counters.windows, created)
    yield count(
        "qjoule_unattributed_windows",
        "Windows whose energy no owner has: gaps and failed readings.",
        counters.unattributed,
        created,
    )
    about = (
        "Records lost, by cause. opaque_session: sessions hidden by TLS or compression, "
        "which only the attach mode symbol sees."
    )
    yield by_label("qjoule_lost_records", about, "cause", counters.loss, created)
    yield Family(
        "qjoule_lost_cpu_seconds",
        "counter",
        "CPU time whose owner was lost.",
        "seconds",
        [Sample((), decimal(counters.lost_cpu_ns), created)],
    )
    yield by_label(
        "qjoule_folded_shapes",
        "Statements without a series of their own, added up over intervals; counted in other.",
        "server",
        counters.folded,
        created,
    )
    yield Family(
        "qjoule_coverage_ratio",
        "gauge",
        "Share of a server's CPU time in the last interval that has a named owner.",
        "ratio",
        [
            Sample((("server", server),), f"{named_ns / cpu:.6f}")
            for server, (cpu, named_ns) in sorted(counters.named_cpu_ns.items())
            if cpu
        ],
    )
    sizes = {"queries": len(counters.queries), "owners": len(counters.owners)}
    yield gauge("qjoule_series", "Statements and owners with series.", "of", sizes)
