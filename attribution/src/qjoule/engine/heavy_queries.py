# SPDX-License-Identifier: Apache-2.0
"""The energy of a trace's heaviest queries one by one, also of those that have not ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from qjoule.engine import recorded
from qjoule.engine.attribute import AttributionContext, AttributionRequest, Observer
from qjoule.engine.keys import Selection
from qjoule.engine.recorded import Recording
from qjoule.model.arrays import Segments
from qjoule.model.coefficients_used import UNCALIBRATED, Calibrated
from qjoule.trace.reader import Trace
from qjoule.trace.schema import QUERIES

#: Queries whose energy is computed, those with the most CPU time.
MOST = 1_000


@dataclass(frozen=True)
class Heavy:
    """A query. `text`: its shape, empty if it is unknown, as while the query runs."""

    query: int
    energy_nj: int
    ended: bool
    text: str


@dataclass
class BusiestQueries(Observer):
    """CPU time and begin of the queries with the most CPU time."""

    cpu_ns: Counter[int] = field(default_factory=Counter)
    begins_ns: dict[int, int] = field(default_factory=dict)

    def read(self, table: pa.Table, _segments: Segments | None = None) -> None:
        of_queries = table.filter(table.column("query").is_valid())
        t0_ns = of_queries.column("t0_ns").to_numpy()
        took_ns = of_queries.column("t1_ns").to_numpy() - t0_ns
        sums = pa.table(
            {"query": of_queries.column("query"), "ns": pa.array(took_ns), "t0": pa.array(t0_ns)}
        ).group_by("query")
        for query, ns, t0 in zip(
            *sums.aggregate([("ns", "sum"), ("t0", "min")])
            .select(["query", "ns_sum", "t0_min"])
            .to_pydict()
            .values(),
            strict=True,
        ):
            self.cpu_ns[query] += ns
            self.begins_ns[query] = min(self.begins_ns.get(query, t0), t0)
        for query, _ in self.cpu_ns.most_common()[10 * MOST :]:
            del self.cpu_ns[query], self.begins_ns[query]


@dataclass(frozen=True)
class _InMemory:
    """Query records as a part of the table."""

    records: pa.Table

    def read(self, columns: Sequence[str]) -> pa.Table:
        return self.records.select(columns)


def heavy_queries(
    trace: Trace, calibrated: Calibrated = UNCALIBRATED, busiest: BusiestQueries | None = None
) -> list[Heavy]:
    """The queries with the most CPU time, at most `MOST`.

    `busiest`: an observer that has watched an attribution of the trace; None: it is read for that.
    """
    recording = recorded.read(trace)
    if busiest is None:
        busiest = BusiestQueries()
        for table in recording.segments(["t0_ns", "t1_ns", "query"]):
            busiest.read(table)
    heaviest = [query for query, _ in busiest.cpu_ns.most_common(MOST)]
    if not heaviest:
        return []
    ended = _ended(recording, heaviest)
    running = {query: busiest.begins_ns[query] for query in heaviest if query not in ended}
    recording = replace(recording, queries=[*recording.queries, _running(running, trace.end_ns)])
    context = AttributionContext(
        recording,
        AttributionRequest(
            ("query", "fingerprint"),
            calibrated=calibrated,
            where=Selection((("query", frozenset(map(str, heaviest))),)),
        ),
    )
    result = context.result(context.run(), recorded.summary(trace, recording))
    found = []
    for row in result.rows:
        number = row.keys.get("query", "")
        if number.isdecimal() and int(number) in busiest.cpu_ns:
            text = row.shape if int(number) in ended else ""
            found.append(Heavy(int(number), row.energy_nj, int(number) in ended, text))
    return found


def _ended(recording: Recording, queries: list[int]) -> set[int]:
    wanted = np.array(queries, np.uint64)
    found: set[int] = set()
    for part in recording.queries:
        if (table := part.read(["query"])) is not None:
            ids = table.column("query").to_numpy()
            found.update(ids[np.isin(ids, wanted)].tolist())
    return found


def _running(begins_ns: dict[int, int], end_ns: int) -> _InMemory:
    """A record for each query that has not ended."""
    rows = [
        {"query": query, "begin_ns": begin_ns, "end_ns": end_ns, "command": "query"}
        for query, begin_ns in begins_ns.items()
    ]
    return _InMemory(pa.Table.from_pylist(rows, QUERIES))
