# SPDX-License-Identifier: Apache-2.0
"""Attribution of a recorded trace: one pass over its segments, in bounded memory.

Segments become windows, windows an account, the account a result. Every caller that attributes a
trace (`attribute`, a replay, the report) takes this one path, and watches it as an `Observer`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from qjoule.engine import recorded
from qjoule.engine.accounts import account_settings, batches, divided, provenance
from qjoule.engine.class_keys import classes
from qjoule.engine.grouped import Grouped
from qjoule.engine.keys import EVERYTHING, TRANSACTION, Selection, check_keys
from qjoule.engine.memory_adapter import MemoryAdapter
from qjoule.engine.query_groups import QueryGroups, RecordedRequests
from qjoule.engine.recorded import ReadSummary, Recording
from qjoule.errors import UsageError
from qjoule.model import assemble
from qjoule.model.account import Account, Closed
from qjoule.model.arrays import Machine, Segments, WindowBatch
from qjoule.model.coefficients import IDLE_POLICIES, Coefficients, IdlePolicy
from qjoule.model.coefficients_used import UNCALIBRATED, Calibrated
from qjoule.model.energy import WindowEnergy
from qjoule.model.explain import RowWatch
from qjoule.model.fit.cells import Cell
from qjoule.model.labels import GroupLabel
from qjoule.model.latency import CallStats
from qjoule.model.ledger import Ledger
from qjoule.model.result import Attribution
from qjoule.model.row_sums import COMMIT, with_commits
from qjoule.model.span_sums import Roles
from qjoule.model.split import Split
from qjoule.trace.reader import Trace


@dataclass(frozen=True)
class AttributionRequest:
    """Options of an attribution: the arguments of `attribute`."""

    by: tuple[str, ...] = ("fingerprint",)
    idle: IdlePolicy = "separate"
    coefficients: Coefficients | None = None
    calibrated: Calibrated = UNCALIBRATED
    where: Selection = EVERYTHING
    without_stolen: bool = False  #: excludes stolen CPU time from weights

    def __post_init__(self) -> None:
        """Raises `UsageError` for an unknown key or policy."""
        check_keys(self.by)
        if self.idle not in IDLE_POLICIES:
            raise UsageError(f"no idle policy '{self.idle}': use {', '.join(IDLE_POLICIES)}")


class Observer:
    """Watches an attribution. Its methods are called in this order, and must not change their
    arguments."""

    def started(
        self,
        energy: WindowEnergy,
        machine: Machine,
        labels: Sequence[GroupLabel],
        queries: QueryGroups,
    ) -> None:
        """Called with every window of the trace, and every group, by number."""

    def read(self, table: pa.Table, segments: Segments, /) -> None:
        """Called with segments and their groups; `table` has their rows, with the column
        `query`."""

    def split(self, batch: WindowBatch, ledger: Ledger, splits: Sequence[Split]) -> None:
        """Called with closed windows, and the split of each of `ledger.series`."""

    def finished(self, ledger: Ledger) -> None:
        """Called with the final sums, including what is only learned from the whole trace."""


NOBODY = Observer()


class AttributionContext:
    """One recording and one grouping of its queries, before any segment is read.

    `labels`: of the groups, by number. `grouped`: the segments and queries with their groups.
    """

    def __init__(self, recording: Recording, request: AttributionRequest) -> None:
        self._request, self._meta = request, recording.meta
        self._transactions = recording.transactions if TRANSACTION in request.by else None
        self.grouped = Grouped(
            recording,
            (*request.by, COMMIT) if self._transactions else request.by,
            where=request.where,
            transactions=self._transactions,
        )
        self.labels = self.grouped.labels
        self._helpers = recording.helpers
        self._stolen_recorded = recording.stolen is not None
        self._requests = RecordedRequests(self.grouped.queries, self.labels)
        self._windows = recording.windows(without_stolen=request.without_stolen)
        self._core_windows = recording.core_windows(without_stolen=request.without_stolen)
        self._settings = account_settings(
            recording.meta,
            recording.energy.series,
            recording.machine.packages,
            request.idle,
            request.coefficients or request.calibrated.coefficients,
        )
        if recording.cores is not None:
            self._settings = replace(self._settings, cores=recording.cores.counters)

    def memory(self) -> MemoryAdapter:
        """Returns the machine's memory of earlier traces, for these groups."""
        return MemoryAdapter.of(self._request.calibrated.memory, self.labels, self._meta)

    def account(
        self,
        memory: MemoryAdapter | None = None,
        closed: Closed | None = None,
        *,
        by_block: bool = True,
        watch: RowWatch | None = None,
    ) -> Account:
        """Returns an empty account of the windows; for the arguments see `Account`."""
        return Account(
            replace(self._settings, by_block=by_block),
            class_of=classes(self.labels),
            roles=_roles(self.labels) if self._requests.any else None,
            closed=closed,
            memory=memory,
            watch=watch,
        )

    def batches(self) -> Iterator[WindowBatch]:
        """Yields all windows, in consecutive batches."""
        return batches(self._windows, self.grouped.segments(), self._requests)

    def run(
        self,
        observer: Observer = NOBODY,
        memory: MemoryAdapter | None = None,
        watch: RowWatch | None = None,
    ) -> Ledger:
        """Returns the sums of all windows. `memory`: None: the request's."""
        account = self.account(memory or self.memory(), observer.split, watch=watch)
        windows, queries = self._windows, self.grouped.queries
        observer.started(windows.energy, windows.machine, self.labels, queries)
        segments = self.grouped.segments(observer.read)
        ledger = divided(account, windows, segments, self._requests, self._core_windows)
        if self._request.without_stolen:
            ledger.cpu_ns += ledger.stolen_ns.astype(np.int64)
        observer.finished(ledger)
        return ledger

    def result(
        self, ledger: Ledger, summary: ReadSummary, calls: CallStats | None = None
    ) -> Attribution:
        """Returns the result of some windows. `calls`: calls in them; None: of all windows."""
        groups = len(self.labels)
        whole = calls is None and not self._requests.any
        about = replace(
            provenance(self._meta, ledger, summary.info),
            by=self._request.by,
            where=str(self._request.where),
            stolen_recorded=self._stolen_recorded,
            without_stolen=self._request.without_stolen,
            coverage=self.grouped.reader.coverage if whole else None,
            record_loss=recorded.record_loss(summary, ledger),
            anomalies=self._windows.anomalies,
            notes=summary.notes,
        )
        queries = self.grouped.queries
        commits = queries.commits(groups) if self._transactions else None
        calls = calls or queries.stats(groups, self._helpers)
        result = assemble.attribution(ledger, self.labels, calls, about)
        if commits is not None:
            result = with_commits(result, self.labels, commits)
        return self._request.calibrated.annotate(result)


def attribute(
    trace: Trace,
    by: Sequence[str] = ("fingerprint",),
    idle: IdlePolicy = "separate",
    coefficients: Coefficients | None = None,
    *,
    calibrated: Calibrated = UNCALIBRATED,
    where: Selection = EVERYTHING,
    without_stolen: bool = False,
    observer: Observer = NOBODY,
    learned: Callable[[tuple[Cell, ...]], object] = lambda _cells: None,
) -> Attribution:
    """Apportions every joule of `trace` to one owner, with queries grouped by the keys `by`.

    The same trace and arguments give the same result, to the bit. `coefficients` take precedence
    over those of `calibrated`, and these over the defaults. Queries that `where` excludes form one
    row per server, because they ran and have their share. `without_stolen`: CPU time that the host
    of a virtual machine stole is not in the weights, but still in the rows. `observer` sees each
    window when it is closed. `learned` is called with the trace's evidence about the machine, for
    the machine's memory. Raises `UsageError` for an unknown key or policy.
    """
    request = AttributionRequest(
        tuple(by), idle, coefficients, calibrated, where, without_stolen=without_stolen
    )
    return attributed(trace, request, observer, learned)


def attributed(
    trace: Trace,
    request: AttributionRequest,
    observer: Observer = NOBODY,
    learned: Callable[[tuple[Cell, ...]], object] = lambda _cells: None,
) -> Attribution:
    """Does what `attribute` does, with its arguments in one object."""
    recording = recorded.read(trace, transactions=TRANSACTION in request.by)
    context = AttributionContext(recording, request)
    memory = context.memory()
    ledger = context.run(observer, memory)
    learned(memory.take())
    summary = recorded.summary(trace, recording)
    return context.result(ledger, summary)


def _roles(labels: Sequence[GroupLabel]) -> Roles:
    # Only counted requests need this import, and it loads all dialects.
    from qjoule.servers.decoding import SERVING_THREADS  # noqa: PLC0415

    return Roles(labels, SERVING_THREADS)
