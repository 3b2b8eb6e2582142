# SPDX-License-Identifier: Apache-2.0
"""Makes an `Attribution` from a ledger, its labels and call statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from qjoule.model.findings import Findings, model_info
from qjoule.model.labels import BY_CALLS, BY_THREAD, SHAPE_OF, GroupLabel
from qjoule.model.latency import CallStats
from qjoule.model.ledger import Ledger
from qjoule.model.provenance import Provenance
from qjoule.model.result import (
    MEASURED_PER_CORE,
    PARTS,
    Attribution,
    Domain,
    EnergySource,
    ModelInfo,
    Row,
    ServerCoverage,
)
from qjoule.model.result_rows import result_rows
from qjoule.model.row_sums import in_order, without

UNNAMED_ROLES = ("", "(unknown)")


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
        result_rows(ledger, labels, calls, provenance, findings),
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
