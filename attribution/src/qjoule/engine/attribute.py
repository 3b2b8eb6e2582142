"""Attribution of a recorded trace: one pass over its segments, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from qjoule.engine import recorded, tables
from qjoule.engine.groups import check_keys, group_owners
from qjoule.engine.observer import NOBODY, Observer
from qjoule.engine.query_groups import QueryGroups
from qjoule.engine.requests import RecordedRequests
from qjoule.engine.selection import EVERYTHING, Selection
from qjoule.engine.transactions import COMMIT, Transactions, with_commits
from qjoule.engine.transactions import KEY as TRANSACTION
from qjoule.errors import UsageError
from qjoule.model import assemble
from qjoule.model.account import Account
from qjoule.model.calibrated import UNCALIBRATED, Calibrated
from qjoule.model.classes import classes
from qjoule.model.coefficients import IDLE_POLICIES, Coefficients, IdlePolicy
from qjoule.model.labels import LabelIndex
from qjoule.model.result import Attribution
from qjoule.model.span_sums import Roles
from qjoule.model.spans import learn, settle
from qjoule.model.windows import SegmentWindows
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
) -> Attribution:
    """Apportions every joule of `trace` to one owner, with queries grouped by the keys `by`.

    The same trace and arguments give the same result, to the bit. `progress` is called with the
    number of segments of each batch that is done. `coefficients` count before those of
    `calibrated`, and these before what is assumed of any machine. Queries that `where` leaves out
    are one row for each server: they ran, and have their share. `observer` sees the windows as
    they are closed, and changes nothing. Raises `UsageError` for an unknown
    key or policy.
    """
    keys = check_keys(by)
    if idle not in IDLE_POLICIES:
        raise UsageError(f"no idle policy '{idle}': use {', '.join(IDLE_POLICIES)}")
    energy = recorded.windows(trace)
    coefficients = coefficients or calibrated.coefficients
    coefficients = coefficients or recorded.default_coefficients(trace.meta, energy.series)
    index = LabelIndex()
    names = recorded.server_names(trace.meta)
    by_thread = recorded.servers_by_thread(trace.meta)
    owners = group_owners(trace.table("owners"), names, index, by_thread)
    told = Transactions.of(trace.table("transactions")) if TRANSACTION in keys else None
    asked = (*keys, COMMIT) if told else keys
    parts, shapes = trace.row_groups("queries"), trace.table("shapes")
    queries = QueryGroups(parts, shapes, names, asked, index, where=where, transactions=told)
    requests = RecordedRequests(queries, index.labels)
    machine = recorded.machine(trace)
    lost = tables.lost_time(trace.table("loss"), trace.begin_ns)
    windows = SegmentWindows(machine, energy, lost)
    account = Account(
        energy.series,
        machine.packages,
        coefficients,
        idle,
        recorded.update_period_ns(trace.meta),
        class_of=classes(index.labels),
        refit=recorded.learns(trace.meta.energy.grade),
        roles=Roles(index.labels) if requests.any else None,
        closed=observer.split,
    )
    reader = recorded.SegmentReader(queries, owners, bool(trace.meta.counters))
    observer.started(energy, machine, index.labels, queries)
    for table in trace.iter_segments(columns=reader.columns):
        segments = reader.read(table)
        observer.read(table, segments)
        account.add(requests.added(windows.add(segments)))
        if progress:
            progress(table.num_rows)
    account.add(requests.added(windows.finish()))
    ledger, labels = account.finish(), index.labels
    settle(ledger, learn(ledger))
    observer.finished(ledger)
    about = assemble.Provenance(
        trace=recorded.trace_info(trace),
        source=trace.meta.energy.source or "none",
        grade=trace.meta.energy.grade if energy.series else "none",
        reason=trace.meta.energy.reason,
        by=keys,
        where=str(where),
        coverage=None if requests.any else reader.coverage,
        record_loss=recorded.record_loss(trace, ledger, trace.lost_cpu_ns),
        anomalies=windows.anomalies,
        notes=tuple(trace.problems),
    )
    result = assemble.attribution(ledger, labels, queries.stats(len(labels)), about)
    if told:
        result = with_commits(result, labels, queries.commits(len(labels)))
    return calibrated.said_in(result)
