# SPDX-License-Identifier: Apache-2.0
"""Attribution of a recorded trace: one pass over its segments, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from qjoule.engine import recorded
from qjoule.engine.accounts import Accounts, divided, total_errors
from qjoule.engine.grouped import Grouped
from qjoule.engine.groups import check_keys
from qjoule.engine.observer import NOBODY, Observer
from qjoule.engine.remembering import Remembering
from qjoule.engine.selection import EVERYTHING, Selection
from qjoule.engine.transactions import COMMIT, Transactions, with_commits
from qjoule.engine.transactions import KEY as TRANSACTION
from qjoule.errors import UsageError
from qjoule.model import assemble
from qjoule.model.arrays import Segments
from qjoule.model.classes import classes
from qjoule.model.coefficients import IDLE_POLICIES, Coefficients, IdlePolicy
from qjoule.model.coefficients_used import UNCALIBRATED, Calibrated
from qjoule.model.fit.cells import Cell
from qjoule.model.labels import GroupLabel
from qjoule.model.result import Attribution
from qjoule.model.span_sums import Roles
from qjoule.trace.reader import Trace


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
    keys = check_keys(by)
    if idle not in IDLE_POLICIES:
        raise UsageError(f"no idle policy '{idle}': use {', '.join(IDLE_POLICIES)}")
    energy = recorded.windows(trace)
    told = Transactions.of(trace.table("transactions")) if TRANSACTION in keys else None
    asked = (*keys, COMMIT) if told else keys
    grouped = Grouped(trace, asked, where=where, transactions=told)
    requests, labels = grouped.requests(), grouped.labels
    windows = recorded.segment_windows(trace, energy)
    machine = windows.machine
    accounts = Accounts.of(
        trace.meta,
        energy.series,
        machine.packages,
        idle,
        coefficients or calibrated.coefficients,
    )
    memory = Remembering.of(calibrated.memory, labels, trace.meta)
    account = accounts.new(
        class_of=classes(labels),
        roles=_roles(labels) if requests.any else None,
        closed=observer.split,
        memory=memory,
    )

    def read(table: pa.Table, segments: Segments) -> None:
        observer.read(table, segments)
        if progress:
            progress(table.num_rows)

    observer.started(energy, machine, labels, grouped.queries)
    ledger = divided(account, windows, grouped.segments(read), requests)
    observer.finished(ledger)
    learned(memory.take())
    about = assemble.Provenance(
        trace=recorded.trace_info(trace),
        source=trace.meta.energy.source or "none",
        grade=trace.meta.energy.grade if energy.series else "none",
        reason=trace.meta.energy.reason,
        total_errors=total_errors(trace.meta),
        by=keys,
        where=str(where),
        coverage=None if requests.any else grouped.reader.coverage,
        record_loss=recorded.record_loss(trace, ledger, trace.lost_cpu_ns),
        anomalies=windows.anomalies,
        notes=recorded.notes(trace),
    )
    result = assemble.attribution(ledger, labels, grouped.queries.stats(len(labels)), about)
    if told:
        result = with_commits(result, labels, grouped.queries.commits(len(labels)))
    return calibrated.said_in(result)


def _roles(labels: Sequence[GroupLabel]) -> Roles:
    # Only counted requests need this import, and it loads all dialects.
    from qjoule.servers.decoding import SERVING_THREADS  # noqa: PLC0415

    return Roles(labels, SERVING_THREADS)
