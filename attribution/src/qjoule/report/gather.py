# SPDX-License-Identifier: Apache-2.0
"""One bounded-memory pass over a trace: its attribution, and the figures of a page.

Invariant: the series of `Power` add up to the attribution's totals, to the nanojoule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from qjoule.engine import recorded
from qjoule.engine.accounts import with_ids
from qjoule.engine.attribute import Observer, attribute
from qjoule.engine.keys import EVERYTHING, Selection
from qjoule.engine.query_groups import Part, QueryGroups
from qjoule.model.arrays import F64, Machine, Segments, WindowBatch
from qjoule.model.coefficients import IdlePolicy
from qjoule.model.coefficients_used import UNCALIBRATED, Calibrated
from qjoule.model.energy import I64, WindowEnergy
from qjoule.model.labels import SHAPE_OF, GroupLabel
from qjoule.model.ledger import Ledger
from qjoule.model.result import PARTS, Attribution, Row
from qjoule.model.slow import first_parts
from qjoule.model.split import Split
from qjoule.report.buckets import BUCKETS_MAX, Buckets, Cells
from qjoule.report.samples import Sample
from qjoule.trace.columns import view
from qjoule.trace.reader import Trace

#: Default keys: the statement, and where it ran.
BY = ("fingerprint", "server", "database")
STACKED = 7  #: rows of queries with separate colours
DETAILED = 200  #: rows with `Detail`
DETAIL_BUCKETS = 120


@dataclass(frozen=True)
class Power:
    """The main domain over b buckets of time, (b,) each. Divide by `known_ns` for watts.

    `parts_nj`: energy of each of `PARTS`; they add up to `measured_nj`. `rows_nj`: energy of the
    first rows of queries by row number, included in the part of queries. `known_ns`: time with a
    usable reading; where it is 0, the power is unknown.
    """

    edges_ns: I64  #: (b + 1,) from the trace's start
    known_ns: I64
    measured_nj: I64
    parts_nj: Mapping[str, I64]
    rows_nj: Mapping[int, I64]


@dataclass(frozen=True)
class Detail:
    """One row of queries over c coarser buckets, and a sample of n of its calls.

    `latency_ns` of a sampled call is negative where it is unknown.
    """

    energy_nj: I64  #: (c,)
    calls: I64  #: (c,)
    call_nj: F64  #: (n,)
    latency_ns: I64  #: (n,)


@dataclass(frozen=True)
class Gathered:
    """A trace's figures. `details` by row number in `attribution.rows`."""

    attribution: Attribution
    power: Power
    detail_edges_ns: I64
    detail_known_ns: I64
    details: Mapping[int, Detail] = field(default_factory=dict)


def gather(
    trace: Trace,
    by: Sequence[str] = BY,
    idle: IdlePolicy = "separate",
    *,
    calibrated: Calibrated = UNCALIBRATED,
    where: Selection = EVERYTHING,
    buckets: int = BUCKETS_MAX,
    progress: Callable[[int], None] | None = None,
) -> Gathered:
    """Attributes a trace and collects the figures of a page. `buckets`: maximum number of time
    buckets. `progress` is called with each batch's number of segments. Raises as `attribute`."""
    watching = _GatherObserver(buckets, progress)
    attribution = attribute(trace, by, idle, calibrated=calibrated, where=where, observer=watching)
    ids = recorded.recorded_ids([trace])
    return watching.gathered(trace.row_groups("queries"), with_ids(attribution, ids))


class _GatherObserver(Observer):
    """Sums over time while a trace is attributed. Arguments as in `gather`."""

    def __init__(self, buckets: int, progress: Callable[[int], None] | None) -> None:
        self._most_buckets, self._progress = buckets, progress

    def started(
        self,
        energy: WindowEnergy,
        machine: Machine,
        labels: Sequence[GroupLabel],
        queries: QueryGroups,
    ) -> None:
        self._labels, self._queries = labels, queries
        self._buckets = Buckets(energy.boundaries_ns, self._most_buckets)
        kind = np.array([PARTS.index(label.kind) for label in labels], np.int64)
        self._cells = Cells(kind)
        self._sample = Sample(queries.stats(len(labels)), machine)
        self._known_ns = np.zeros(self._buckets.count, np.int64)
        self._measured_nj = np.zeros(self._buckets.count, np.int64)

    def read(self, table: pa.Table, segments: Segments) -> None:
        self._sample.read(table, segments)
        if self._progress:
            self._progress(table.num_rows)

    def split(self, batch: WindowBatch, ledger: Ledger, splits: Sequence[Split]) -> None:
        known = np.zeros(len(batch.idle_ns), bool)
        for zone in ledger.zones.get(ledger.main, ()):
            view = zone.view(batch)
            first = first_parts(batch, zone.series)
            bucket = self._buckets.of_windows(batch.first + first)
            entries = zone.take(view).entries
            for s in zone.series:
                split = splits[s]
                self._cells.add(entries.group, bucket[entries.window], split.entry_nj)
                self._cells.add_part("idle", bucket, split.idle_nj)
                self._cells.add_part("residual", bucket, split.residual_nj)
                usable = view.energy.known[s]
                known |= np.repeat(usable, np.diff(np.append(first, len(known))))
                measured = np.where(usable, view.energy.energy_nj[s], 0)
                np.add.at(self._measured_nj, bucket, measured)
        bucket = self._buckets.of_windows(batch.first + np.arange(len(known)))
        dt_ns = np.diff(batch.energy.boundaries_ns)
        np.add.at(self._known_ns, bucket, np.where(known, dt_ns, 0))
        self._sample.split(batch, ledger, splits)

    def finished(self, ledger: Ledger) -> None:
        """Also spreads over time what a regression moved between shapes, server by server."""
        if ledger.spans is None or ledger.main not in ledger.domains:
            return
        final = ledger.domains[ledger.main].energy_nj[: len(self._labels)]
        before = np.zeros(len(final), np.int64)
        for group in range(len(final)):
            if not self._cells.folded[group]:
                before[group] = self._cells.of_groups([group], self._buckets.count).sum()
        moved = np.where(self._cells.folded, 0, final - before)
        servers = np.array([label.server for label in self._labels])
        for server in np.unique(servers[moved != 0]).tolist():
            moved_nj = np.where(servers == server, moved, 0)
            taken, given = np.maximum(-moved_nj, 0), np.maximum(moved_nj, 0)
            if taken.sum() == given.sum():
                self._cells.move(taken, given, self._buckets.count)

    # ---- results --------------------------------------------------------------------------------

    def gathered(self, queries: Sequence[Part], attribution: Attribution) -> Gathered:
        groups = self._groups_of(attribution.rows[: 2 * DETAILED])
        count = self._buckets.count
        whole = {
            number: row_groups
            for number, row_groups in groups.items()
            if row_groups and not self._cells.folded[row_groups].any()
        }
        detailed = list(whole)[:DETAILED]
        rows_nj = {n: self._cells.of_groups(whole[n], count) for n in detailed}
        first_ns = int(self._buckets.edges_ns[0]) if count else 0
        kinds = self._cells.of_kinds(count)
        power = Power(
            self._buckets.edges_ns - first_ns,
            self._known_ns,
            self._measured_nj,
            dict(zip(PARTS, kinds, strict=True)),
            {n: rows_nj[n] for n in detailed[:STACKED]},
        )
        coarse = np.unique(np.linspace(0, count, min(DETAIL_BUCKETS, count) + 1).astype(int))
        calls = self._calls({n: whole[n] for n in detailed}, coarse)
        sampled = self._sampled(queries, {n: whole[n] for n in detailed})
        details = {n: Detail(_coarser(rows_nj[n], coarse), calls[n], *sampled[n]) for n in detailed}
        known_ns = _coarser(self._known_ns, coarse)
        edges = power.edges_ns[coarse] if count else power.edges_ns
        return Gathered(attribution, power, edges, known_ns, details)

    def _groups_of(self, rows: Sequence[Row]) -> dict[int, list[int]]:
        """The groups that make up each row, by the row's number."""
        numbers = {row.identity: number for number, row in enumerate(rows)}
        out: dict[int, list[int]] = {number: [] for number in range(len(rows))}
        for group, label in enumerate(self._labels):
            keys = tuple(sorted((k, v) for k, v in label.keys if k != SHAPE_OF))
            apart = f"{label.attach_mode} {label.server}" if label.is_counted else ""
            number = numbers.get((label.kind, keys, apart))
            if number is not None:
                out[number].append(group)
        return out

    def _row_of(self, rows: Mapping[int, Sequence[int]]) -> I64:
        """Returns (groups,) the index in `rows` of each group's row; -1 if it has none."""
        out = np.full(len(self._labels), -1, np.int64)
        for place, groups in enumerate(rows.values()):
            out[list(groups)] = place
        return out

    def _calls(self, rows: Mapping[int, Sequence[int]], coarse: I64) -> dict[int, I64]:
        """Calls of each row by the coarse bucket in which they ended."""
        sums = np.zeros((len(rows), max(len(coarse) - 1, 1)), np.int64)
        row_of = self._row_of(rows)
        for part in range(self._queries.parts if rows else 0):
            calls = self._queries.calls(part)
            row = row_of[calls.group]
            listed = np.flatnonzero(row >= 0)
            bucket = self._buckets.of_times(calls.end_ns[listed])
            place = np.searchsorted(coarse, bucket, "right") - 1
            np.add.at(sums, (row[listed], place), calls.executions[listed])
        return dict(zip(rows, sums, strict=True))

    def _sampled(
        self, queries: Sequence[Part], rows: Mapping[int, Sequence[int]]
    ) -> dict[int, tuple[F64, I64]]:
        """Energy and latency of the sampled calls of each row, in order of their ids."""
        ids, group, energy = self._sample.calls()
        latency = np.full(len(ids), -1, np.int64)
        for part in queries if len(ids) else ():
            table = part.read(["query", "begin_ns", "end_ns"])
            if table is None or not table.num_rows:
                continue
            query = view(table.column("query"))
            index = np.minimum(np.searchsorted(ids, query), len(ids) - 1)
            matches = np.flatnonzero(ids[index] == query)
            begin_ns, end_ns = (view(table.column(name)) for name in ("begin_ns", "end_ns"))
            latency[index[matches]] = (end_ns - begin_ns)[matches]
        row = self._row_of(rows)[group]
        return {
            number: (energy[row == place], latency[row == place])
            for place, number in enumerate(rows)
        }


def _coarser(sums: I64, coarse: npt.NDArray[np.int64]) -> I64:
    if len(coarse) < 2:
        return sums
    return np.add.reduceat(sums, coarse[:-1])
