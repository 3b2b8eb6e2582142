# SPDX-License-Identifier: Apache-2.0
"""Attribution of a recorded trace: one pass over its segments, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from qjoule.engine import recorded
from qjoule.engine.accounts import Accounts, counters_left_out, divided, total_errors
from qjoule.engine.grouped import Grouped
from qjoule.engine.keys import EVERYTHING, TRANSACTION, Selection, check_keys
from qjoule.engine.memory_adapter import MemoryAdapter
from qjoule.engine.observer import NOBODY, Observer
from qjoule.engine.transactions import COMMIT, Transactions, with_commits
from qjoule.errors import UsageError
from qjoule.model import assemble
from qjoule.model.account import Account, Closed
from qjoule.model.arrays import Anomalies, Segments
from qjoule.model.classes import classes
from qjoule.model.coefficients import IDLE_POLICIES, Coefficients, IdlePolicy
from qjoule.model.coefficients_used import UNCALIBRATED, Calibrated
from qjoule.model.fit.cells import Cell
from qjoule.model.labels import GroupLabel
from qjoule.model.latency import CallStats
from qjoule.model.ledger import Ledger
from qjoule.model.result import Attribution
from qjoule.model.span_sums import Roles
from qjoule.model.windows import SegmentWindows
from qjoule.trace.reader import Trace


@dataclass(frozen=True)
class AttributionRequest:
    """What an attribution is asked for; the arguments of `attribute`."""

    by: tuple[str, ...] = ("fingerprint",)
    idle: IdlePolicy = "separate"
    coefficients: Coefficients | None = None
    calibrated: Calibrated = UNCALIBRATED
    where: Selection = EVERYTHING

    def __post_init__(self) -> None:
        """Raises `UsageError` for an unknown key or policy."""
        check_keys(self.by)
        if self.idle not in IDLE_POLICIES:
            raise UsageError(f"no idle policy '{self.idle}': use {', '.join(IDLE_POLICIES)}")


class AttributionContext:
    """A trace's windows and groups, before any segment is read."""

    def __init__(self, trace: Trace, asked: AttributionRequest) -> None:
        self.trace, self.asked = trace, asked
        self.energy = recorded.windows(trace)
        has_transactions = TRANSACTION in asked.by
        self.told = Transactions.of(trace.table("transactions")) if has_transactions else None
        keys = (*asked.by, COMMIT) if self.told else asked.by
        self.grouped = Grouped(trace, keys, where=asked.where, transactions=self.told)
        self.requests = self.grouped.requests()
        self.labels = self.grouped.labels

    def windows(self) -> SegmentWindows:
        """Converts the trace's segments to its windows."""
        return recorded.segment_windows(self.trace, self.energy)

    def memory(self) -> MemoryAdapter:
        """What is remembered of earlier traces."""
        return MemoryAdapter.of(self.asked.calibrated.memory, self.labels, self.trace.meta)

    def account(
        self, packages: tuple[int, ...], memory: MemoryAdapter, closed: Closed | None = None
    ) -> Account:
        """An empty account of the windows."""
        accounts = Accounts.of(
            self.trace.meta,
            self.energy.series,
            packages,
            self.asked.idle,
            self.asked.coefficients or self.asked.calibrated.coefficients,
        )
        return accounts.new(
            class_of=classes(self.labels),
            roles=_roles(self.labels) if self.requests.any else None,
            closed=closed,
            memory=memory,
            by_block=True,
        )


def result(
    trace: Trace,
    asked: AttributionRequest,
    ledger: Ledger,
    groups: tuple[Sequence[GroupLabel], CallStats],
    seen: tuple[float | None, Anomalies],
) -> Attribution:
    """The result of all windows. `groups`: their labels, and calls; `seen`: the share of the
    servers' CPU time that has a known statement (None: from the labels), and anomalies."""
    about = assemble.Provenance(
        trace=recorded.trace_info(trace),
        source=trace.meta.energy.source or "none",
        grade=trace.meta.energy.grade if ledger.series else "none",
        reason=trace.meta.energy.reason,
        total_errors=total_errors(trace.meta),
        left_out=counters_left_out(trace.meta),
        by=asked.by,
        where=str(asked.where),
        coverage=seen[0],
        record_loss=recorded.record_loss(trace, ledger, trace.lost_cpu_ns),
        anomalies=seen[1],
        notes=recorded.notes(trace),
    )
    return assemble.attribution(ledger, *groups, about)


def attribute(
    trace: Trace,
    by: Sequence[str] = ("fingerprint",),
    idle: IdlePolicy = "separate",
    coefficients: Coefficients | None = None,
    progress: Callable[[int], None] | None = None,
    *,
    calibrated: Calibrated = UNCALIBRATED,
    where: Selection = EVERYTHING,
    observer: Observer = NOBODY,
    learned: Callable[[tuple[Cell, ...]], object] = lambda _cells: None,
) -> Attribution:
    """Apportions every joule of `trace` to one owner, with queries grouped by the keys `by`.

    The same trace and arguments give the same result, to the bit. `progress` is called with the
    number of segments of each batch that is done. `coefficients` take precedence over those of
    `calibrated`, and these over the defaults. Queries that `where` excludes form one row per
    server: they ran and have their share. `observer` sees the windows as they are closed, and
    changes nothing. `learned` is called with what the trace tells of the machine, for its memory.
    Raises `UsageError` for an unknown key or policy.
    """
    asked = AttributionRequest(check_keys(by), idle, coefficients, calibrated, where)
    terms = AttributionContext(trace, asked)
    grouped, requests, labels = terms.grouped, terms.requests, terms.labels
    windows, memory = terms.windows(), terms.memory()
    account = terms.account(windows.machine.packages, memory, observer.split)

    def read(table: pa.Table, segments: Segments) -> None:
        observer.read(table, segments)
        if progress:
            progress(table.num_rows)

    observer.started(terms.energy, windows.machine, labels, grouped.queries)
    ledger = divided(account, windows, grouped.segments(read), requests)
    observer.finished(ledger)
    learned(memory.take())
    coverage = None if requests.any else grouped.reader.coverage
    groups = (labels, grouped.queries.stats(len(labels)))
    found = result(trace, asked, ledger, groups, (coverage, windows.anomalies))
    if terms.told:
        found = with_commits(found, labels, grouped.queries.commits(len(labels)))
    return calibrated.said_in(found)


def _roles(labels: Sequence[GroupLabel]) -> Roles:
    # Only counted requests need this import, and it loads all dialects.
    from qjoule.servers.decoding import SERVING_THREADS  # noqa: PLC0415

    return Roles(labels, SERVING_THREADS)
