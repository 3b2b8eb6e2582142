# SPDX-License-Identifier: Apache-2.0
"""Traces compared in a page: each with the first, statement by statement."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from qjoule.model.gpsup import Comparison, Form, compare, match
from qjoule.model.result import Attribution
from qjoule.model.row_sums import merged
from qjoule.model.same_total import without_total_error
from qjoule.report.page_data import clean
from qjoule.reporters import format as fmt
from qjoule.reporters.json_report import forms

ROWS_MAX = 200


def compared(traces: Mapping[str, Attribution]) -> list[dict[str, Any]]:
    """Every trace after the first against it, by statement."""
    base_name, *others = traces or ("",)
    return [_pair(base_name, name, traces[base_name], traces[name]) for name in others]


def _pair(base_name: str, name: str, base: Attribution, new: Attribution) -> dict[str, Any]:
    differ = warnings(base, new)
    # Totals of one machine and source are wrong by the same factor.
    pairs = match(_forms(base, same_total=not differ), _forms(new, same_total=not differ))
    found = [compare(one, other) for one, other in pairs]
    return {
        "base": clean(base_name, 200),
        "new": clean(name, 200),
        "warnings": differ,
        "rows": [_row(one) for one in found[:ROWS_MAX]],
        "more": max(len(found) - ROWS_MAX, 0),
    }


def warnings(base: Attribution, new: Attribution) -> list[str]:
    """Differences between two traces that make their joules not directly comparable."""
    pairs = (
        ("grade", base.energy_source.grade, new.energy_source.grade),
        ("idle policy", base.policy.get("idle"), new.policy.get("idle")),
        ("machine", _machine(base), _machine(new)),
        ("energy domain", base.energy_source.main_domain, new.energy_source.main_domain),
        ("weights", base.model.weight, new.model.weight),
    )
    return [
        clean(f"Not of one {what}: {one or 'unknown'} against {other or 'unknown'}.", 400)
        for what, one, other in pairs
        if one != other
    ]


def _machine(found: Attribution) -> str:
    return " · ".join(filter(None, (found.trace.host, found.trace.cpu, found.trace.kernel)))


def _forms(found: Attribution, *, same_total: bool) -> list[Form]:
    """Statements by fingerprint alone, whatever else rows are grouped by. `same_total`: without the
    error of the total."""
    rows = [row for row in found.rows if "fingerprint" in row.keys and not row.not_selected]
    alone = merged(replace(row, keys={"fingerprint": row.keys["fingerprint"]}) for row in rows)
    of_rows = forms(replace(found, rows=tuple(alone)))
    return [*map(without_total_error, of_rows)] if same_total else of_rows


def _row(one: Comparison) -> dict[str, Any]:
    return {
        "text": clean(one.base.shape or one.base.name, 600),
        "category": one.category,
        "base_per_call": _per_call(one.base),
        "new_per_call": _per_call(one.new),
        "speedup": _finite(one.speedup),
        "greenup": _finite(one.greenup),
        "powerup": _finite(one.powerup),
        "speedup_ci95": _interval(one.speedup_ci95),
        "greenup_ci95": _interval(one.greenup_ci95),
        "powerup_ci95": _interval(one.powerup_ci95),
    }


def _per_call(form: Form) -> str | None:
    if form.j_per_call is None:
        return None
    return fmt.with_interval(form.j_per_call, form.j_per_call_ci95)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _interval(ends: tuple[float, float] | None) -> list[float | None] | None:
    return None if ends is None else [_finite(ends[0]) or 0.0, _finite(ends[1])]
