# SPDX-License-Identifier: Apache-2.0
"""Prepares the account of a recording or a live stream from the trace's meta, and the provenance of
its result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from qjoule.model.account import Account, AccountSettings
from qjoule.model.arrays import Segments, WindowBatch
from qjoule.model.coefficients import Coefficients, IdlePolicy, PowerInterval
from qjoule.model.energy import SLOW_NS, UPDATE_PERIOD_NS, Series
from qjoule.model.idle_table import IdleTable
from qjoule.model.ledger import Ledger
from qjoule.model.provenance import Provenance
from qjoule.model.result import APPEARED, Attribution, ServerChange, TraceInfo
from qjoule.model.spans import apply_regression_costs, learn
from qjoule.model.windows import SegmentWindows
from qjoule.shapes.shape import OtherId
from qjoule.trace.meta import Meta, Throttled

if TYPE_CHECKING:  # a live stream needs no Arrow
    from qjoule.engine.query_groups import RecordedRequests

#: A larger relative error is ignored: it says nothing about the total.
_MOST_ERROR = 1000.0
#: The ids that other tools have for statements, by fingerprint.
OtherIds = Mapping[str, tuple[OtherId, ...]]


def account_settings(
    meta: Meta,
    series: tuple[Series, ...],
    packages: tuple[int, ...],
    idle: IdlePolicy,
    coefficients: Coefficients | None = None,
) -> AccountSettings:
    """`meta`: says the energy source and its domains. `coefficients` None: use the defaults."""
    return AccountSettings(
        series,
        packages,
        coefficients or default_coefficients(meta, series),
        idle,
        update_period_ns(meta),
        learns(meta.energy.grade),
        idle_table(meta),
    )


def batches(
    windows: SegmentWindows,
    segments: Iterable[Segments],
    requests: RecordedRequests | None = None,
) -> Iterator[WindowBatch]:
    """Converts segments, in order of `t0_ns`, to consecutive batches that contain all windows.

    `requests`: adds requests that own no CPU time; None: the trace has none.
    """
    added = requests.added if requests else lambda batch: batch
    yield from map(added, map(windows.add, segments))
    yield added(windows.finish())


def divided(
    account: Account,
    windows: SegmentWindows,
    segments: Iterable[Segments],
    requests: RecordedRequests | None = None,
    cores: SegmentWindows | None = None,
) -> Ledger:
    """Returns the ledger of all windows; `account` must be empty. `cores`: makes windows of single
    cores, if they have counters."""
    if cores is not None:
        segments = _add_core_windows(cores, account, segments)
    for batch in batches(windows, segments, requests):
        account.add(batch)
    ledger = account.finish()
    apply_regression_costs(ledger, learn(ledger))
    return ledger


def _add_core_windows(
    cores: SegmentWindows, account: Account, segments: Iterable[Segments]
) -> Iterator[Segments]:
    """Passes segments on, after adding the windows of cores that they complete to the account."""
    for part in segments:
        account.add_cores(cores.add(part))
        yield part
    account.add_cores(cores.finish())


def default_coefficients(meta: Meta, series: Sequence[Series]) -> Coefficients:
    """Returns the coefficients of a machine without calibration.

    An estimator's curve includes the power at rest. For measured counters nothing is known.
    (Domains of one name in one package are dies: they add up.)
    """
    idle_w: dict[tuple[int, str], float] = {}
    for domain in meta.domains:
        if domain.idle_w is not None:
            key = (domain.package, domain.name)
            idle_w[key] = idle_w.get(key, 0.0) + domain.idle_w
    keys = {(s.package, s.domain) for s in series} & idle_w.keys()
    return Coefficients(idle_w={key: PowerInterval(*3 * (idle_w[key],)) for key in sorted(keys)})


def idle_table(meta: Meta) -> IdleTable | None:
    """Returns the idle states that are enabled; None if they say nothing of the cores.

    A guest may halt or poll in its own state (drivers/cpuidle/cpuidle-haltpoll.c), which does not
    show what the real core does.
    """
    states = meta.idle_states
    if meta.energy.source == "host" or any("haltpoll" in state.name.lower() for state in states):
        return None
    on = [
        (state.residency_us * 1000, state.latency_us * 1000)
        for state in states
        if state.residency_us is not None and state.disabled < state.cpus
    ]
    # A polling state is no sleep.
    if not any(residency_ns for residency_ns, _ in on):
        return None
    residency_ns, exit_ns = zip(*on, strict=True)
    return IdleTable(residency_ns, exit_ns)


def update_period_ns(meta: Meta) -> int:
    """Returns the period at which energy counters are updated; RAPL's if the trace has none.

    It is 0 for an estimate, which is computed when it is read.
    """
    if meta.energy.source == "estimated":
        return 0
    periods_ns = [d.period_ns for d in meta.domains if d.period_ns and d.period_ns > 0]
    fast = [period_ns for period_ns in periods_ns if period_ns <= SLOW_NS]
    # Slow counters have longer windows, which end when the counter changes.
    return max(fast, default=0 if periods_ns else UPDATE_PERIOD_NS)


def lag_ns(meta: Meta) -> int:
    """Returns by how much, on average, the energy of a reading was drawn before the reading.

    A counter shows the energy up to its last update, half a period earlier on average. Only
    hardware counters lag: a replayed or computed reading is exact at its time.
    """
    return update_period_ns(meta) // 2 if meta.energy.grade == "measured" else 0


def total_errors(meta: Meta) -> dict[str, float]:
    """Returns relative 95 % errors of domains' totals, by domain; only estimates have them."""
    if meta.energy.grade != "estimated":
        return {}
    errors: dict[str, float] = {}
    for domain in meta.domains:
        if domain.error is not None and 0 < domain.error <= _MOST_ERROR:  # NaN is neither
            errors[domain.name] = max(domain.error, errors.get(domain.name, 0.0))
    return errors


def provenance(meta: Meta, ledger: Ledger, trace: TraceInfo) -> Provenance:
    """Returns the provenance of a result for some windows of `trace`."""
    return Provenance(
        trace=trace,
        source=meta.energy.source or "none",
        grade=meta.energy.grade if ledger.series else "none",
        reason=meta.energy.reason,
        total_errors=total_errors(meta),
        left_out=dict.fromkeys(meta.energy.appeared, APPEARED),  # nobody read them
    )


def learns(grade: str) -> bool:
    """Returns true if power can be learned from the windows: an estimate is made from the load."""
    return grade in ("measured", "simulated")


def server_changes(meta: Meta) -> tuple[ServerChange, ...]:
    """Returns the changes of servers during the recording, with wall-clock times."""
    return tuple(
        ServerChange(
            change.what,
            change.name,
            meta.moment(change.t_ns),
            meta.moment(change.until_ns),
            change.pid,
            change.process,
            change.cpu_ns,
            change.why,
        )
        for change in meta.changes
    )


def throttled_note(throttled: Throttled | None, when: str = "while this was recorded") -> str:
    """Says that heat throttled CPUs, and how often; empty if none did, or it is not known."""
    if throttled is None or not (throttled.core or throttled.package):
        return ""
    counted = (("a core", throttled.core), ("a package", throttled.package))
    events = ", ".join(f"of {what}: {count:,}" for what, count in counted if count)
    return (
        f"the CPU was too hot {when} and throttled itself (events {events}). The same work draws "
        "other power on a cool CPU"
    )


def with_ids(attribution: Attribution, ids: OtherIds) -> Attribution:
    """Adds the other tools' ids of each row's statement."""
    if not ids:
        return attribution
    rows = tuple(
        replace(row, ids=ids.get(row.keys.get("fingerprint", ""), ())) for row in attribution.rows
    )
    return replace(attribution, rows=rows)
