# SPDX-License-Identifier: Apache-2.0
"""The energy of a trace's heaviest queries one by one, also of those that have not ended."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from qjoule.engine.attribute import attribute
from qjoule.engine.keys import Selection
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


def heavy_queries(trace: Trace, calibrated: Calibrated = UNCALIBRATED) -> list[Heavy]:
    """The queries with the most CPU time, at most `MOST`. Those that still run get a row in
    `trace`, which must be a copy of one's own.
    """
    cpu_ns: Counter[int] = Counter()
    begins_ns: dict[int, int] = {}
    for table in trace.iter_segments(columns=["t0_ns", "t1_ns", "query"]):
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
            cpu_ns[query] += ns
            begins_ns[query] = min(begins_ns.get(query, t0), t0)
        for query, _ in cpu_ns.most_common()[10 * MOST :]:
            del cpu_ns[query], begins_ns[query]
    heaviest = [query for query, _ in cpu_ns.most_common(MOST)]
    if not heaviest:
        return []
    ended = _ended(trace, heaviest)
    running = {query: begins_ns[query] for query in heaviest if query not in ended}
    trace = _with_running(trace, running)
    keys = ("query", "fingerprint")
    where = Selection((("query", frozenset(map(str, heaviest))),))
    result = attribute(trace, keys, calibrated=calibrated, where=where)
    found = []
    for row in result.rows:
        number = row.keys.get("query", "")
        if number.isdecimal() and int(number) in cpu_ns:
            text = row.shape if int(number) in ended else ""
            found.append(Heavy(int(number), row.energy_nj, int(number) in ended, text))
    return found


def _ended(trace: Trace, queries: list[int]) -> set[int]:
    wanted = np.array(queries, np.uint64)
    found: set[int] = set()
    for part in trace.row_groups("queries"):
        if (table := part.read(["query"])) is not None:
            ids = table.column("query").to_numpy()
            found.update(ids[np.isin(ids, wanted)].tolist())
    return found


def _with_running(trace: Trace, running: dict[int, int]) -> Trace:
    """The trace with a row for each query that has not ended, in a part of its own."""
    if not running:
        return trace
    rows = [
        {"query": query, "begin_ns": begin_ns, "end_ns": trace.end_ns, "command": "query"}
        for query, begin_ns in running.items()
    ]
    folder = trace.path / "queries"
    folder.mkdir(exist_ok=True)
    last = max((int(path.stem.split("-")[-1]) for path in folder.glob("part-*")), default=-1)
    pq.write_table(pa.Table.from_pylist(rows, QUERIES), folder / f"part-{last + 1:06d}.parquet")
    return Trace(trace.path)
