# SPDX-License-Identifier: Apache-2.0
"""Computes results of a trace besides its attribution: the energy of each of its heaviest queries,
finished or not; each shape's power factor; and the power of the phases of a calibration.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from qjoule.engine import recorded
from qjoule.engine.attribute import AttributionContext, AttributionRequest, Observer
from qjoule.engine.class_keys import classes
from qjoule.engine.keys import Selection
from qjoule.engine.recorded import Recording
from qjoule.model.arrays import F64, Segments, WindowBatch
from qjoule.model.coefficients_used import UNCALIBRATED, Calibrated
from qjoule.model.energy import Bool, Cause, Series
from qjoule.model.features import FEATURES, entry_features
from qjoule.model.fit.known_loads import Phase
from qjoule.model.fit.solo import narrowed
from qjoule.model.labels import GroupLabel, process
from qjoule.model.ledger import Ledger, main_domain
from qjoule.model.power_model import PowerModel
from qjoule.model.split import Split
from qjoule.trace.reader import Trace
from qjoule.trace.schema import QUERIES

#: Number of queries whose energy is computed: those with the most CPU time.
MOST = 1_000


@dataclass(frozen=True)
class Heavy:
    """A heavy query. `text`: its shape; empty if unknown, as while the query runs."""

    query: int
    energy_nj: int
    ended: bool
    text: str


@dataclass
class BusiestQueries(Observer):
    """Finds the queries with the most CPU time, with this time and their begin."""

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
    """A part of the table `queries` that is held in memory."""

    records: pa.Table

    def read(self, columns: Sequence[str]) -> pa.Table:
        return self.records.select(columns)


def heavy_queries(
    trace: Trace, calibrated: Calibrated = UNCALIBRATED, busiest: BusiestQueries | None = None
) -> list[Heavy]:
    """Returns the queries with the most CPU time, at most `MOST`.

    `busiest`: an observer of an earlier attribution of the trace; None: the trace is read again.
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
    heavy = []
    for row in result.rows:
        number = row.keys.get("query", "")
        if number.isdecimal() and int(number) in busiest.cpu_ns:
            text = row.shape if int(number) in ended else ""
            heavy.append(Heavy(int(number), row.energy_nj, int(number) in ended, text))
    return heavy


def _ended(recording: Recording, queries: list[int]) -> set[int]:
    wanted = np.array(queries, np.uint64)
    ended: set[int] = set()
    for part in recording.queries:
        if (table := part.read(["query"])) is not None:
            ids = table.column("query").to_numpy()
            ended.update(ids[np.isin(ids, wanted)].tolist())
    return ended


def _running(begins_ns: dict[int, int], end_ns: int) -> _InMemory:
    """Makes a record for each query that has not ended."""
    rows = [
        {"query": query, "begin_ns": begin_ns, "end_ns": end_ns, "command": "query"}
        for query, begin_ns in begins_ns.items()
    ]
    return _InMemory(pa.Table.from_pylist(rows, QUERIES))


@dataclass(frozen=True)
class LearnedFactors:
    """The model of a trace's main domain, and each shape's mean features per ns of CPU time."""

    model: PowerModel | None
    features: dict[str, F64]
    columns: dict[str, int]

    def factor(self, fingerprint: str) -> tuple[float, float] | None:
        """Returns a shape's power factor and its standard error; None if nothing was learned."""
        if self.model is None or fingerprint not in self.columns:
            return None
        column = self.columns[fingerprint]
        return float(self.model.factor[column]), self.model.factor_sigma(column)

    def narrowed(self, fingerprint: str, seconds: float) -> tuple[float, float] | None:
        """Returns the standard error of a shape's factor now, and after `seconds` in which only the
        shape runs; None without a factor, or without energy to learn from."""
        if self.model is None or fingerprint not in self.columns:
            return None
        features = self.features[fingerprint]
        return narrowed(self.model, 0, self.columns[fingerprint], features, seconds)


def known_factors(trace: Trace, calibrated: Calibrated = UNCALIBRATED) -> LearnedFactors:
    """Attributes a trace by shape, in one pass, and returns the model that was learned."""
    recording = recorded.read(trace)
    context = AttributionContext(recording, AttributionRequest(calibrated=calibrated))
    sums: dict[int, F64] = {}

    def closed(batch: WindowBatch, _ledger: Ledger, _splits: Sequence[Split]) -> None:
        _add(sums, batch)

    account = context.account(closed=closed)  # without evidence of earlier traces
    for batch in context.batches():
        account.add(batch)
    account.finish()
    domain = main_domain([series.domain for series in recording.energy.series])
    return _factors(account.models().get(domain), sums, context.labels)


def _add(sums: dict[int, F64], batch: WindowBatch) -> None:
    entries = batch.entries
    if not len(entries.group):
        return
    features = entry_features(entries, len(batch.lost_ns))
    groups, index = np.unique(entries.group, return_inverse=True)
    for column, group in enumerate(groups.tolist()):
        total = features[index == column].sum(axis=0)
        sums[group] = sums.get(group, np.zeros(len(FEATURES))) + total


def _factors(
    model: PowerModel | None, sums: dict[int, F64], labels: Sequence[GroupLabel]
) -> LearnedFactors:
    features: dict[str, F64] = {}
    columns: dict[str, int] = {}
    first = classes(labels)
    for number, label in enumerate(labels):
        name = dict(label.keys).get("fingerprint", "")
        if label.kind != "queries" or not name or number not in sums:
            continue
        ns = float(sums[number][[FEATURES.index("cpu_ns"), FEATURES.index("cpu_ns_shared")]].sum())
        place = int(model.column(first(np.array([number])))[0]) if model is not None else -1
        if ns > 0 and place >= 0:
            features[name], columns[name] = sums[number] / ns, place
    return LearnedFactors(model, features, columns)


def phase_windows(trace: Trace, program: str) -> tuple[list[WindowBatch], tuple[Series, ...], Bool]:
    """Returns every window of a trace, in consecutive batches, and the counters of these windows.

    The last array, (groups,), is true for groups that are processes of this name.
    """
    recording = recorded.read(trace)
    context = AttributionContext(recording, AttributionRequest())
    of_program = np.array([label == process(program) for label in context.labels], bool)
    return [*context.batches()], recording.energy.series, of_program


def phase_power_w(
    batches: Sequence[WindowBatch], series: Sequence[Series], phases: Sequence[Phase]
) -> list[tuple[int, dict[str, float]]]:
    """Returns, for each phase, its number of windows, and the mean power by "domain.package".

    Windows with unknown energy are ignored. Dies of one package add up.
    """
    phase_sums = []
    for phase in phases:
        windows_seen, power_w = 0, dict[str, float]()
        for s, counter in enumerate(series):
            energy_nj = length_ns = count = 0
            for batch in batches:
                bounds = batch.energy.boundaries_ns
                inside = (bounds[:-1] >= phase.t0_ns) & (bounds[1:] <= phase.t1_ns)
                good = inside & (batch.energy.cause[s] == Cause.NONE)
                count += int(inside.sum())
                energy_nj += int(batch.energy.energy_nj[s][good].sum())
                length_ns += int(np.diff(bounds)[good].sum())
            windows_seen = max(windows_seen, count)
            if length_ns:
                name = f"{counter.domain}.{counter.package}"
                power_w[name] = power_w.get(name, 0.0) + energy_nj / length_ns
        phase_sums.append((windows_seen, power_w))
    return phase_sums
