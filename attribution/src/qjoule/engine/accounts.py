# SPDX-License-Identifier: Apache-2.0
"""What the account of a recording or a live stream is given beside its windows: settings, from its
meta; classes of groups that draw alike; and the hashes under which a memory keeps those of shapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from qjoule.lazy_import import blake2b
from qjoule.model.account import Account, AccountSettings
from qjoule.model.arrays import Segments, WindowBatch
from qjoule.model.assemble import Provenance
from qjoule.model.coefficients import Coefficients, IdlePolicy, IdleTable, PowerInterval
from qjoule.model.energy import I64, SLOW_NS, UPDATE_PERIOD_NS, Series
from qjoule.model.fit.cells import U64
from qjoule.model.fit.rows import ClassOf
from qjoule.model.labels import (
    FORGOTTEN_PROCESSES,
    FORGOTTEN_ROLES,
    FORGOTTEN_SHAPES,
    NO_TEXT,
    NONE_LABEL,
    NOT_SELECTED,
    OTHER_SHAPES,
    SEVERAL,
    TEXT_LOST,
    GroupLabel,
)
from qjoule.model.ledger import Ledger
from qjoule.model.result import APPEARED, Attribution, ServerChange, TraceInfo
from qjoule.model.spans import apply_regression_costs, learn
from qjoule.model.windows import SegmentWindows
from qjoule.shapes.shape import OtherId
from qjoule.trace.meta import Meta, Server

if TYPE_CHECKING:  # a live stream needs no Arrow
    from qjoule.engine.query_groups import RecordedRequests

#: A relative error above this says nothing, so it is taken for no statement.
_MOST_ERROR = 1000.0
#: The ids that other tools have for statements, by fingerprint.
OtherIds = Mapping[str, tuple[OtherId, ...]]


def classes(labels: Sequence[GroupLabel]) -> ClassOf:
    """Groups that run one statement form a class: a single query is too short to learn from.

    Every other group, including those beyond `labels`, is a class of its own.
    """
    first: dict[tuple[str, ...], int] = {}
    table = np.arange(len(labels), dtype=np.int64)
    for number, label in enumerate(labels):
        statement = dict(label.keys).get("fingerprint") or label.shape
        if label.kind == "queries" and statement:
            table[number] = first.setdefault((statement, label.server), number)

    def class_of(groups: I64) -> I64:
        if not len(table):
            return groups
        labelled = groups < len(table)
        return np.where(labelled, table[np.minimum(groups, len(table) - 1)], groups)

    return class_of


#: Labels that do not stand for the same work in another trace.
_NO_WORK = {
    *(FORGOTTEN_PROCESSES, FORGOTTEN_ROLES, FORGOTTEN_SHAPES, NO_TEXT, NONE_LABEL),
    *(NOT_SELECTED, OTHER_SHAPES, SEVERAL, TEXT_LOST),
}


def hashed(*parts: str) -> int:
    """64 bits of some texts; never 0."""
    text = "\0".join(parts).encode(errors="surrogateescape")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little") or 1


@dataclass(frozen=True)
class ClassKeys:
    """Keys of classes by their labels. `servers`: by name, (kind, version)."""

    labels: Sequence[GroupLabel]
    servers: Mapping[str, tuple[str, str]]

    @staticmethod
    def of(labels: Sequence[GroupLabel], servers: Sequence[Server]) -> ClassKeys:
        names = {server.name or server.kind: (server.kind, server.version) for server in servers}
        return ClassKeys(labels, names)

    def of_classes(self, classes: I64) -> tuple[U64, U64]:
        """The keys of classes, 0 for one without, and their servers' releases."""
        pairs = [self._of(int(number)) for number in classes]
        keys = np.array([key for key, _ in pairs], np.uint64)
        return keys, np.array([release for _, release in pairs], np.uint64)

    def name(self, number: int) -> str:
        """A class as notes call it."""
        label = self.labels[number]
        return label.shape or ", ".join(value for _, value in label.keys) or label.kind

    def _of(self, number: int) -> tuple[int, int]:
        if number >= len(self.labels):
            return 0, 0
        label = self.labels[number]
        kind, version = self.servers.get(label.server, (label.server, ""))
        if kind == SEVERAL:
            kind, version = "", ""
        keys = dict(label.keys)
        if label.kind == "queries":
            name = keys.get("fingerprint", "")
            if keys.keys() - {"server"} != {"fingerprint"}:
                return 0, 0
        else:
            name = keys.get("role") or keys.get("process") or ""
        if not name or name in _NO_WORK:
            return 0, 0
        return hashed(label.kind, kind, name), hashed(kind, version)


def account_settings(
    meta: Meta,
    series: tuple[Series, ...],
    packages: tuple[int, ...],
    idle: IdlePolicy,
    coefficients: Coefficients | None = None,
) -> AccountSettings:
    """`meta`: of the energy source and its domains. `coefficients` None: use the defaults."""
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
    """All windows of segments, which come in order of `t0_ns`, in consecutive batches.

    `requests`: requests that own no CPU time, if there may be any.
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
    """The ledger of all windows, as `batches` makes them; `account` must be empty. `cores`: makes
    windows of single cores, if there are counters of them."""
    if cores is not None:
        segments = _through(cores, account, segments)
    for batch in batches(windows, segments, requests):
        account.add(batch)
    ledger = account.finish()
    apply_regression_costs(ledger, learn(ledger))
    return ledger


def _through(
    cores: SegmentWindows, account: Account, segments: Iterable[Segments]
) -> Iterator[Segments]:
    """The segments, after the account was given the windows of cores that they complete."""
    for part in segments:
        account.add_cores(cores.add(part))
        yield part
    account.add_cores(cores.finish())


def default_coefficients(meta: Meta, series: Sequence[Series]) -> Coefficients:
    """The defaults for a machine without calibration.

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
    """The states that are on, as the model uses them; None if they say nothing of the cores.

    A guest may halt or poll in a state of its own (drivers/cpuidle/cpuidle-haltpoll.c). What the
    real core then does is not known.
    """
    states = meta.idle_states
    if meta.energy.source == "host" or any("haltpoll" in state.name.lower() for state in states):
        return None
    on = [
        (state.residency_us * 1000, state.latency_us * 1000)
        for state in states
        if state.residency_us is not None and state.disabled < state.cpus
    ]
    # A state that polls is no sleep.
    if not any(residency_ns for residency_ns, _ in on):
        return None
    residency_ns, exit_ns = zip(*on, strict=True)
    return IdleTable(residency_ns, exit_ns)


def update_period_ns(meta: Meta) -> int:
    """How often the energy counters are updated; 0 for an estimate, which is computed when read.

    If a trace does not give the period, RAPL's is used.
    """
    if meta.energy.source == "estimated":
        return 0
    periods_ns = [d.period_ns for d in meta.domains if d.period_ns and d.period_ns > 0]
    fast = [period_ns for period_ns in periods_ns if period_ns <= SLOW_NS]
    # Slow ones have windows of their own, which end where they move.
    return max(fast, default=0 if periods_ns else UPDATE_PERIOD_NS)


def lag_ns(meta: Meta) -> int:
    """How much earlier than its reading, on average, the energy of a reading was drawn.

    A counter shows the energy up to its last update, half a period earlier on average. Only
    hardware counters lag: a replayed or computed reading is exact at its time.
    """
    return update_period_ns(meta) // 2 if meta.energy.grade == "measured" else 0


def total_errors(meta: Meta) -> dict[str, float]:
    """Relative 95 % errors of the totals of the domains that say theirs; estimates alone do."""
    if meta.energy.grade != "estimated":
        return {}
    errors: dict[str, float] = {}
    for domain in meta.domains:
        if domain.error is not None and 0 < domain.error <= _MOST_ERROR:  # NaN is neither
            errors[domain.name] = max(domain.error, errors.get(domain.name, 0.0))
    return errors


def provenance(meta: Meta, ledger: Ledger, trace: TraceInfo) -> Provenance:
    """The provenance of a result of some windows of `trace`."""
    return Provenance(
        trace=trace,
        source=meta.energy.source or "none",
        grade=meta.energy.grade if ledger.series else "none",
        reason=meta.energy.reason,
        total_errors=total_errors(meta),
        left_out=dict.fromkeys(meta.energy.appeared, APPEARED),  # nobody read them
    )


def learns(grade: str) -> bool:
    """Whether windows can show who draws what: an estimated total was itself made from the load."""
    return grade in ("measured", "simulated")


def server_changes(meta: Meta) -> tuple[ServerChange, ...]:
    """The changes of servers while the trace was recorded, with wall-clock times."""
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


def with_ids(attribution: Attribution, ids: OtherIds) -> Attribution:
    """The attribution with the ids of each row's statement."""
    if not ids:
        return attribution
    rows = tuple(
        replace(row, ids=ids.get(row.keys.get("fingerprint", ""), ())) for row in attribution.rows
    )
    return replace(attribution, rows=rows)
