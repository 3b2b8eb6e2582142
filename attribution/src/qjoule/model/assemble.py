# SPDX-License-Identifier: Apache-2.0
"""Makes an `Attribution` from a ledger, its labels and call statistics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from qjoule.model.arrays import Anomalies
from qjoule.model.coefficients import TOTAL_ERROR
from qjoule.model.findings import Findings, model_info
from qjoule.model.interval import EnergyErrors
from qjoule.model.labels import BY_CALLS, BY_THREAD, SHAPE_OF, GroupLabel
from qjoule.model.latency import CallStats
from qjoule.model.ledger import Ledger
from qjoule.model.result import (
    MEASURED_PER_CORE,
    OWNERS,
    PARTS,
    Attribution,
    Domain,
    EnergySource,
    ModelInfo,
    Outcomes,
    Row,
    ServerCoverage,
    TraceInfo,
    Waits,
)
from qjoule.model.row_sums import in_order, without
from qjoule.model.shares import shares_of

UNNAMED_ROLES = ("", "(unknown)")
FEW_WINDOWS = 25  #: fewer windows do not determine the power of what ran in them


def by_server(ledger: Ledger, labels: Sequence[GroupLabel]) -> tuple[ServerCoverage, ...]:
    """The coverage of each server that ran, sorted by name.

    A query counts if its statement is known; a thread outside of queries counts if it has a
    role. The CPU time of a group that belongs to several servers is listed under
    `labels.SEVERAL`.
    """
    ledger.grow(len(labels))
    sums_ns: dict[str, list[int]] = {}
    for label, ns in zip(labels, ledger.cpu_ns.tolist(), strict=False):
        if label.kind not in ("queries", "background") or not label.server or not ns:
            continue
        sums = sums_ns.setdefault(label.server, [0, 0, 0])
        sums[0] += ns
        if label.kind == "queries":
            sums[1] += ns * label.named
        else:
            sums[2] += ns * (dict(label.keys).get("role", "") not in UNNAMED_ROLES)
    return tuple(ServerCoverage(name, *sums) for name, sums in sorted(sums_ns.items()))


@dataclass(frozen=True)
class Provenance:
    """Where the records came from, which the model itself cannot know.

    `coverage` None: compute it from the labels, as the share of named groups in the servers' CPU
    time. `record_loss`: share of query records that were lost.
    """

    trace: TraceInfo
    source: str
    grade: str
    reason: str = ""
    by: tuple[str, ...] = ("fingerprint",)
    where: str = ""  #: the `--where` condition; empty: all queries
    stolen_recorded: bool = False  #: whether time that a host stole from the CPUs was recorded
    without_stolen: bool = False  #: whether stolen time is left out of the weights
    coverage: float | None = None
    record_loss: float = 0.0
    anomalies: Anomalies | None = None
    notes: tuple[str, ...] = ()
    #: Relative 95 % errors of the totals of domains, where they are known; else by the grade.
    total_errors: Mapping[str, float] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)  #: counters without readings: why

    def total_error(self, domain: str) -> float:
        """The relative 95 % error of a domain's total."""
        return self.total_errors.get(domain, TOTAL_ERROR.get(self.grade, TOTAL_ERROR["estimated"]))


def attribution(
    ledger: Ledger, labels: Sequence[GroupLabel], calls: CallStats, provenance: Provenance
) -> Attribution:
    """Returns the result of all windows that `ledger` contains.

    `labels` and `calls` are per group number and may include groups that never ran.
    """
    ledger.grow(len(labels))
    findings = Findings.of(ledger)
    domain_names = ledger.shown_names
    throttled = (provenance.trace.throttled,) if provenance.trace.throttled else ()
    model = model_info(
        ledger,
        (*findings.notes(labels), *throttled, *provenance.notes, *ledger.remarks),
        provenance.grade,
        {name: provenance.total_error(name) for name in domain_names},
    )
    rows = with_waiting(
        _rows(ledger, labels, calls, provenance, findings),
        model,
        ledger.main,
        idle=ledger.idle,
        duration_s=provenance.trace.duration_s,
    )
    queries, fixed = in_order(without(rows, SHAPE_OF))
    kinds = [label.kind for label in labels]
    return Attribution(
        trace=provenance.trace,
        energy_source=EnergySource(
            provenance.source,
            provenance.grade,
            provenance.reason,
            domain_names,
            ledger.main if domain_names else "",
            provenance.total_error(ledger.main) if domain_names else 0.0,
            {
                name: error
                for name in domain_names[1:]
                if (error := provenance.total_error(name)) > 0
            },
            left_out={**ledger.left_out, **provenance.left_out},
            cores=MEASURED_PER_CORE if ledger.core_blocks else "",
        ),
        policy={"idle": ledger.idle, "by": ",".join(provenance.by)}
        | ({"where": provenance.where} if provenance.where else {})
        | ({"stolen": "left out"} if provenance.without_stolen else {}),
        model=model,
        domains=tuple(_domain(ledger, name, kinds, provenance) for name in domain_names),
        rows=queries,
        fixed=fixed,
        coverage=coverage(ledger, labels) if provenance.coverage is None else provenance.coverage,
        servers=by_server(ledger, labels),
        windows=ledger.windows,
        unattributed_windows=ledger.unattributed,
        window_causes=dict(sorted(ledger.causes.items())),
        anomalies=provenance.anomalies.counts() if provenance.anomalies else {},
    )


def with_waiting(
    rows: list[Row], model: ModelInfo, domain: str, *, idle: str, duration_s: float
) -> list[Row]:
    """The rows with `waiting_nj`: the machine's energy at rest while their queries waited.

    Energy at rest in `domain` is divided among the queries in progress.
    """
    prefix = f"idle_w.{domain}."
    powers_w = [value for key, value in model.coefficients.items() if key.startswith(prefix)]
    served_ns = sum(row.waits.latency_ns for row in rows if row.waits)
    if idle == "separate" or not powers_w or not served_ns:
        return rows
    power_w = sum(powers_w) * min(duration_s * 1e9 / served_ns, 1.0)
    return [
        replace(row, waiting_nj=power_w * (row.waits.latency_ns - row.waits.ran_ns))
        if row.waits
        else row
        for row in rows
    ]


def _domain(ledger: Ledger, name: str, kinds: Sequence[str], provenance: Provenance) -> Domain:
    sums = ledger.domains[name]
    parts = dict.fromkeys(PARTS, 0)
    for kind, energy in zip(kinds, sums.energy_nj.tolist(), strict=True):
        parts[kind] += energy
    parts["idle"] = sums.idle_nj
    parts["residual"] = sums.residual_nj
    error = sums.errors.of_total(
        sums.energy_nj, total_error=provenance.total_error(name), record_loss=provenance.record_loss
    )
    return Domain(name, sums.measured_nj, parts, error)


def _rows(
    ledger: Ledger,
    labels: Sequence[GroupLabel],
    calls: CallStats,
    provenance: Provenance,
    findings: Findings,
) -> list[Row]:
    main = ledger.domains.get(ledger.main)
    energy = main.energy_nj if main else np.zeros(len(labels), np.int64)
    errors = {
        name: ledger.error_parts(
            name,
            total_error=provenance.total_error(name),
            record_loss=provenance.record_loss,
            estimated=provenance.grade == "estimated",
        )
        for name in ledger.shown_names
    }
    intervals = {
        name: parts.ends(ledger.domains[name].energy_nj.astype(np.float64))
        for name, parts in errors.items()
    }
    row_errors = {name: parts.each() for name, parts in errors.items()}
    nothing = np.zeros(len(labels))
    low, high = intervals.get(ledger.main, (nothing, nothing))
    other_domains = ledger.shown_names[1:]
    histogram = calls.histogram
    share_error_arrays = (
        ledger.share_errors(
            record_loss=provenance.record_loss, estimated=provenance.grade == "estimated"
        )
        if main
        else None
    )
    share_errors = share_error_arrays.each() if share_error_arrays else []
    shares = shares_of(energy, share_error_arrays, (low, high)) if share_error_arrays else None
    # A group that did not run again may still own energy: the tails of its last sleep.
    nonzero = [ledger.domains[name].energy_nj != 0 for name in ledger.shown_names]
    has_energy = np.any(nonzero or [nothing], axis=0)
    rows = []
    for g, label in enumerate(labels):
        if not (ledger.cpu_ns[g] or calls.calls[g] or has_energy[g]):
            continue
        quantiles = [_number(q) for q in calls.latency_ns_quantiles[g]]
        counters = [
            float(c) if ns > 0 else None
            for c, ns in zip(ledger.counters[g], ledger.counted_ns[g], strict=True)
        ]
        rows.append(
            Row(
                keys=dict(label.keys),
                shape=label.shape,
                server=label.server,
                kind=label.kind,
                calls=int(calls.calls[g]),
                energy_nj=int(energy[g]),
                energy_nj_ci95=(float(low[g]), float(high[g])),
                share=shares[0][g] if shares else None,
                cpu_ns=int(ledger.cpu_ns[g]),
                latency_ns_mean=_number(calls.latency_ns_mean[g]),
                latency_ns_p50=quantiles[0],
                latency_ns_p95=quantiles[1],
                latency_ns_p99=quantiles[2],
                cycles=counters[0],
                instructions=counters[1],
                llc_misses=counters[2],
                attach_mode=label.attach_mode,
                flags=(*_flags(ledger, g, label), *findings.flags(g)),
                energy_by_domain_nj={n: int(ledger.domains[n].energy_nj[g]) for n in other_domains},
                energy_by_domain_ci95={
                    n: (float(intervals[n][0][g]), float(intervals[n][1][g])) for n in other_domains
                },
                power_factor=findings.power_factor(g),
                alone=findings.alone(g),
                shared_nj=int(main.shared_nj[g]) if main else None,
                timed=int(calls.timed[g]),
                latency_counts=() if histogram is None else tuple(histogram[g].tolist()),
                outcomes=_outcomes(calls, g),
                waits=_waits(calls, g),
                helpers=_helpers(calls, g),
                stolen_ns=_stolen_ns(ledger, g) if provenance.stolen_recorded else None,
                error=row_errors[ledger.main][g] if main else None,
                error_by_domain={n: row_errors[n][g] for n in other_domains},
                share_ci95=(shares[1][g], shares[2][g]) if shares else None,
                share_error=share_errors[g] if shares else None,
            )
        )
    present = {row.kind for row in rows}
    rows += [
        _bare_row(ledger, part, provenance.total_error(ledger.main))
        for part in PARTS[1:]
        if part not in present
    ]
    return rows


def _bare_row(ledger: Ledger, part: str, total_error: float) -> Row:
    """The row of idle, residual, or any part that has no group."""
    energies = {
        name: {"idle": sums.idle_nj, "residual": sums.residual_nj}.get(part, 0)
        for name, sums in ledger.domains.items()
        if name in ledger.shown_names
    }
    energy = energies.pop(ledger.main, 0)
    main = ledger.domains.get(ledger.main)
    is_owner = part in OWNERS and main and main.energy_nj.any()
    down = up = float(energy) if part == "residual" else 0.0
    if part == "idle" and main:
        down, up = main.idle_slack_nj
    return Row(
        keys={},
        shape="",
        server="",
        kind=part,
        calls=0,
        energy_nj=energy,
        energy_nj_ci95=(max(energy - down, 0.0), energy + up),
        share=0.0 if is_owner else None,
        cpu_ns={"idle": ledger.idle_ns, "residual": ledger.lost_ns}.get(part, 0),
        energy_by_domain_nj=energies,
        error=EnergyErrors(0.0, 0.0, 0.0, total_error * energy, 0.0, 0.0, down, up),
        share_ci95=(0.0, 0.0) if is_owner else None,
    )


def _flags(ledger: Ledger, g: int, label: GroupLabel) -> tuple[str, ...]:
    """The label's and the ledger's flags. A row is below the resolution if it ran so briefly, in so
    few windows, that its joules show only the mean power of these.
    """
    ran_briefly = (
        0 < ledger.cpu_ns[g] < ledger.window_ns_max and ledger.windows_run[g] < FEW_WINDOWS
    )
    flags = (*label.flags, *ledger.flags.get(g, ()))
    unresolved = ran_briefly and label.kind == "queries" and bool(ledger.series)
    return (*flags, "below_resolution") if unresolved else flags


def _outcomes(calls: CallStats, g: int) -> Outcomes | None:
    if calls.outcomes is None:
        return None
    return Outcomes(*(int(count) for count in calls.outcomes[g]))


def _waits(calls: CallStats, g: int) -> Waits | None:
    if not calls.waits_ns[g, 0]:
        return None
    return Waits(*(int(ns) for ns in calls.waits_ns[g]))


def _helpers(calls: CallStats, g: int) -> Waits | None:
    if calls.helpers_ns is None or not (calls.waits_ns[g, 0] or calls.helpers_ns[g, 0]):
        return None
    return Waits(*(int(ns) for ns in calls.helpers_ns[g]))


def _stolen_ns(ledger: Ledger, g: int) -> int:
    return min(round(float(ledger.stolen_ns[g])), int(ledger.cpu_ns[g]))


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def coverage(ledger: Ledger, labels: Sequence[GroupLabel]) -> float:
    """Share of the servers' CPU time that belongs to a query with a known statement.

    Servers without queries do not count.
    """
    ledger.grow(len(labels))
    by_calls = {label.server for label in labels if label.attach_mode == BY_CALLS}
    servers = [
        i
        for i, label in enumerate(labels)
        if label.kind in ("queries", "background")
        and (label.attach_mode != BY_THREAD or label.server in by_calls)
    ]
    total_ns = int(ledger.cpu_ns[servers].sum())
    named_ns = int(ledger.cpu_ns[[i for i in servers if labels[i].named]].sum())
    return named_ns / total_ns if total_ns else 0.0
