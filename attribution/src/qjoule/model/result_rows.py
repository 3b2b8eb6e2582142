# SPDX-License-Identifier: Apache-2.0
"""Makes the rows of a result from a ledger, its labels and call statistics, for `assemble`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from qjoule.model.call_outcomes import Outcomes, Waits
from qjoule.model.findings import Findings
from qjoule.model.interval import EnergyErrors
from qjoule.model.labels import GroupLabel
from qjoule.model.latency import CallStats
from qjoule.model.ledger import Ledger
from qjoule.model.provenance import Provenance
from qjoule.model.result import OWNERS, PARTS, Row
from qjoule.model.shares import shares_of

FEW_WINDOWS = 25  #: fewer windows do not determine the power of what ran in them


def result_rows(
    ledger: Ledger,
    labels: Sequence[GroupLabel],
    calls: CallStats,
    provenance: Provenance,
    findings: Findings,
) -> list[Row]:
    """The rows of all groups that ran or have energy, then of the parts without a group."""
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
