# SPDX-License-Identifier: Apache-2.0
"""The agent's counts of one minute, as it hands them to the store; made without Arrow.

Rows of the sample are drawn queries, each with its share of its statement's energy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from qjoule.contract import QueryFlag
from qjoule.metrics.interval import Interval, Owner, Query, Shape, Spent, Tagged, safe
from qjoule.snapshots import Sampled
from qjoule.trace import vocabulary


@dataclass
class Minute:
    """What was counted in one minute; `start_s`: Unix time."""

    start_s: int
    seconds: float = 0.0
    grade: str = ""
    policy: str = ""
    node_nj: dict[str, int] = field(default_factory=dict)
    owners: dict[Owner, Spent] = field(default_factory=dict)
    queries: dict[Shape, Query] = field(default_factory=dict)
    lost_records: int = 0
    lost_cpu_ns: int = 0
    tagged: dict[Tagged, Query] = field(default_factory=dict)
    #: Drawn queries, those of an interval in one piece: encoded, they take half the memory.
    samples: list[msgspec.Raw] = field(default_factory=list)

    def add(self, interval: Interval) -> None:
        """Adds an interval whose keys are those of series (`Counters.take`)."""
        self.seconds += interval.seconds
        self.grade, self.policy = interval.grade, interval.policy
        self.lost_records += sum(interval.loss.values())
        self.lost_cpu_ns += interval.lost_cpu_ns
        for domain, energy_nj in interval.node_nj.items():
            self.node_nj[domain] = self.node_nj.get(domain, 0) + energy_nj
        for owner, spent in interval.owners.items():
            self.owners.setdefault(owner, Spent()).add(spent)
        for shape, query in interval.queries.items():
            self.queries.setdefault(shape, Query()).add(query)

    def add_tagged(self, queries: Mapping[Tagged, Query]) -> None:
        for key, query in queries.items():
            self.tagged.setdefault(key, Query()).add(query)

    def add_samples(self, rows: Sequence[Mapping[str, Any]]) -> None:
        if rows:
            self.samples.append(msgspec.Raw(msgspec.msgpack.encode(rows)))

    def sampled(self) -> Iterator[dict[str, Any]]:
        """The rows that `add_samples` was given. Raises `ValueError`: they are damaged."""
        for encoded in self.samples:
            yield from msgspec.msgpack.decode(encoded, type=list[dict[str, Any]])


TRACE = ("trace", "span")
#: A statement's energy per CPU time, and its error at 95 %, both in nJ per ns.
_Rates = dict[tuple[str, str], tuple[float, float]]


def sample_rows(sampled: Sampled, interval: Interval, wall_s: float) -> list[dict[str, Any]]:
    """Returns rows of `hourly_tables.SAMPLE_ROWS` without their common columns. A query whose
    client sent a trace also has `TRACE`, which the store does not keep.

    `wall_s`: the Unix time at which `interval` ended. A query's energy is that of its statement in
    the interval, divided by CPU time.
    """
    rates = _rates(interval)
    columns = zip(
        sampled.queries,
        sampled.cpu_ns.tolist(),
        sampled.probability.tolist(),
        sampled.ago_ns.tolist(),
        sampled.servers,
        sampled.fingerprints,
        sampled.users,
        sampled.databases,
        sampled.applications,
        sampled.clients,
        sampled.traces,
        strict=True,
    )
    rows = []
    for query, cpu_ns, probability, ago_ns, server, fingerprint, *session, trace in columns:
        rate = rates.get((safe(server), fingerprint))
        flags = int(query["flags"])
        user, database, application, client = (_text(text) for text in session)
        rows.append(
            {
                "time": round(wall_s * 1e6) - ago_ns // 1000,
                **{"server": safe(server), "fingerprint": fingerprint},
                **{"database": database, "user": user},
                **{"application": application, "client": client},
                "calls": int(query["executions"]),
                "latency_ns": int(query["end_ns"]) - int(query["begin_ns"]),
                "cpu_ns": cpu_ns,
                **_waits(query),
                "energy_nj": None if rate is None else round(rate[0] * cpu_ns),
                "error_nj": None if rate is None else rate[1] * cpu_ns,
                "rows": int(query["rows"]) if flags & QueryFlag.ROWS else None,
                "outcome": _outcome(flags),
                "probability": probability,
                **({} if trace is None else dict(zip(TRACE, trace, strict=True))),
            }
        )
    return rows


def _waits(query: np.void) -> dict[str, int]:
    """What a query waited for, in ns; none if they are not recorded."""
    recorded = int(query["flags"]) & QueryFlag.WAITS
    return dict(zip(vocabulary.WAITS, query["wait_ns"].tolist(), strict=True)) if recorded else {}


def _rates(interval: Interval) -> _Rates:
    rates: _Rates = {}
    by_statement: dict[tuple[str, str], Query] = {}
    for shape, query in interval.queries.items():
        by_statement.setdefault((shape.server, shape.fingerprint), Query()).add(query)
    for key, query in by_statement.items():
        cpu_ns, energy_nj = query.amounts.cpu_ns, query.amounts.energy_nj
        if not cpu_ns:
            continue
        error_nj = 0.0
        if query.error is not None:
            low, high = query.error.ends(float(energy_nj), absolute=True)
            error_nj = (float(high) - float(low)) / 2
        rates[key] = energy_nj / cpu_ns, error_nj / cpu_ns
    return rates


def _outcome(flags: int) -> str | None:
    if flags & QueryFlag.ERROR:
        return "error"
    return "ok" if flags & QueryFlag.OK else None


def _text(value: str | None) -> str | None:
    return None if value is None else safe(value)
