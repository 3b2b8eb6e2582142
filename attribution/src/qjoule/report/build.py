# SPDX-License-Identifier: Apache-2.0
"""Builds a page from traces and studies: the implementation of `qjoule report`.

Each trace is compared with the first, statement by statement. A study shows the mean of every
combination of levels, with its 95 % interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qjoule.model.coefficients import IdlePolicy
from qjoule.model.coefficients_used import Calibrated
from qjoule.model.gpsup import Comparison, Form, compare, match
from qjoule.model.result import PARTS, Attribution
from qjoule.model.row_sums import merged
from qjoule.model.same_total import without_total_error
from qjoule.process import as_given
from qjoule.report.gather import Gathered, gather
from qjoule.report.page import page
from qjoule.report.page_data import about, clean, trace_data
from qjoule.report.study_runs import FACTOR, read_runs
from qjoule.reporters import format as fmt
from qjoule.reporters.comparison import latency_words
from qjoule.reporters.json_report import forms
from qjoule.trace.reader import Trace

if TYPE_CHECKING:
    import pandas as pd

#: Columns of `Run`: title and unit.
MEASURES = {
    "j_per_operation": ("J per operation", "J"),
    "energy_j": ("energy of the machine per run", "J"),
    "power_w": ("mean power", "W"),
    "throughput": ("operations per second", "/s"),
    "wall_s": ("time per run", "s"),
}
COMBINATIONS_MAX = 300
PROBLEMS_MAX = 100
ROWS_MAX = 200
SCHEMA = "qjoule.page/1"


def study_data(path: Path) -> dict[str, Any]:
    """Returns the figures of the study in a directory. Raises `QjouleError` as `read_runs`."""
    runs = read_runs(path)
    factors = [name for name in runs.columns if name.startswith(FACTOR)]
    done = runs[runs["status"] == "done"] if len(runs) else runs
    measures = [
        _measure(done, factors, name, *about)
        for name, about in MEASURES.items()
        if name in done.columns and done[name].notna().any()
    ]
    return {
        "name": clean(path.resolve().name, 200),
        "factors": [clean(name.removeprefix(FACTOR), 100) for name in factors],
        "runs": len(runs),
        "failed": len(runs) - len(done),
        "grades": _distinct(runs, "grade"),
        "idle_policies": _distinct(runs, "idle_policy"),
        "flags": sorted({clean(flag, 60) for flags in _values(runs, "flags") for flag in flags}),
        "warnings": _warnings(runs),
        "measures": measures,
        "problems": _problems(runs),
    }


def means(runs: pd.DataFrame, factors: list[str], measure: str) -> pd.DataFrame:
    """Returns a row per combination: levels, `runs`, `mean`, `low`, `high` (95 %, Student's t).

    `low` and `high` are missing if there is only one run.
    """
    import pandas as pd  # noqa: PLC0415
    from scipy import stats  # noqa: PLC0415

    measured = runs[runs[measure].notna()]
    groups = measured.groupby(factors, sort=False, dropna=False) if factors else [((), measured)]
    rows = []
    for levels, group in groups:
        values = group[measure].astype(float)
        mean, low, high = values.mean(), None, None
        if len(values) > 1:
            half = stats.t.ppf(0.975, len(values) - 1) * values.sem()
            low, high = mean - half, mean + half
        level_of = dict(
            zip(factors, levels if isinstance(levels, tuple) else (levels,), strict=True)
        )
        rows.append({**level_of, "runs": len(values), "mean": mean, "low": low, "high": high})
    return pd.DataFrame(rows, columns=[*factors, "runs", "mean", "low", "high"])


def _measure(
    runs: pd.DataFrame, factors: list[str], name: str, title: str, unit: str
) -> dict[str, Any]:
    table = means(runs, factors, name)
    rows = [
        {
            "levels": [clean(str(row[factor]), 200) for factor in factors],
            "runs": int(row["runs"]),
            "mean": _known_or_none(row["mean"]),
            "low": _known_or_none(row["low"]),
            "high": _known_or_none(row["high"]),
            "text": fmt.with_interval(
                _known_or_none(row["mean"]),
                None if _known_or_none(row["low"]) is None else (row["low"], row["high"]),
                unit,
            ),
        }
        for row in table.head(COMBINATIONS_MAX).to_dict("records")
    ]
    left_out = len(table) - len(rows)
    note = f" (the first {len(rows)} of {len(table)} combinations)" if left_out else ""
    return {"name": name, "title": title + note, "rows": rows}


def _known_or_none(value: Any) -> float | None:
    return float(value) if value is not None and fmt.is_known(float(value)) else None


def _values(runs: pd.DataFrame, column: str) -> list[Any]:
    return list(runs[column]) if column in runs.columns else []


def _distinct(runs: pd.DataFrame, column: str) -> list[str]:
    return sorted({clean(str(value), 60) for value in _values(runs, column) if value})


def _warnings(runs: pd.DataFrame) -> list[str]:
    """Differences between runs that make their joules not comparable."""
    names = {"grade": "grade", "idle_policy": "idle policy", "machine": "machine"}
    return [
        clean(f"Runs are not of one {title}: {', '.join(values)}.", 400)
        for column, title in names.items()
        if len(values := _distinct(runs, column)) > 1
    ]


def _problems(runs: pd.DataFrame) -> list[str]:
    out = []
    for row in runs.to_dict("records"):
        remarks = [str(row["status"])] if row["status"] != "done" else []
        remarks += [*map(str, row.get("flags") or ()), *filter(None, [row.get("problem")])]
        if remarks:
            out.append(clean(f"run {row['run']}: {', '.join(remarks)}", 400))
    return out[:PROBLEMS_MAX]


def compared(traces: Mapping[str, Attribution]) -> list[dict[str, Any]]:
    """Compares every trace after the first with it, by statement."""
    base_name, *others = traces or ("",)
    return [_compare_pair(base_name, name, traces[base_name], traces[name]) for name in others]


def _compare_pair(base_name: str, name: str, base: Attribution, new: Attribution) -> dict[str, Any]:
    differ = warnings(base, new)
    # Totals of one machine and source have the same relative error.
    pairs = match(_forms(base, same_total=not differ), _forms(new, same_total=not differ))
    comparisons = [compare(base_form, new_form) for base_form, new_form in pairs]
    return {
        "base": clean(base_name, 200),
        "new": clean(name, 200),
        "warnings": differ,
        "rows": [_row(comparison) for comparison in comparisons[:ROWS_MAX]],
        "more": max(len(comparisons) - ROWS_MAX, 0),
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
        clean(
            f"Not of one {title}: {base_value or 'unknown'} against {new_value or 'unknown'}.", 400
        )
        for title, base_value, new_value in pairs
        if base_value != new_value
    ]


def _machine(attribution: Attribution) -> str:
    return " · ".join(
        filter(None, (attribution.trace.host, attribution.trace.cpu, attribution.trace.kernel))
    )


def _forms(attribution: Attribution, *, same_total: bool) -> list[Form]:
    """Statements by fingerprint only; other keys are merged. `same_total`: excludes the error of
    the total."""
    rows = [row for row in attribution.rows if "fingerprint" in row.keys and not row.not_selected]
    alone = merged(replace(row, keys={"fingerprint": row.keys["fingerprint"]}) for row in rows)
    of_rows = forms(replace(attribution, rows=tuple(alone)))
    return [*map(without_total_error, of_rows)] if same_total else of_rows


def _row(comparison: Comparison) -> dict[str, Any]:
    words = latency_words(comparison.base, comparison.new)
    return {
        "text": clean(comparison.base.shape or comparison.base.name, 600),
        "category": comparison.category,
        **({"latency": words} if words else {}),
        "base_per_call": _per_call(comparison.base),
        "new_per_call": _per_call(comparison.new),
        "speedup": _finite(comparison.speedup),
        "greenup": _finite(comparison.greenup),
        "powerup": _finite(comparison.powerup),
        "speedup_ci95": _interval(comparison.speedup_ci95),
        "greenup_ci95": _interval(comparison.greenup_ci95),
        "powerup_ci95": _interval(comparison.powerup_ci95),
    }


def _per_call(form: Form) -> str | None:
    if form.j_per_call is None:
        return None
    return fmt.with_interval(form.j_per_call, form.j_per_call_ci95)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _interval(ends: tuple[float, float] | None) -> list[float | None] | None:
    return None if ends is None else [_finite(ends[0]) or 0.0, _finite(ends[1])]


@dataclass(frozen=True)
class Options:
    """How queries are grouped, the idle policy, and how many rows are shown."""

    by: tuple[str, ...]
    idle: IdlePolicy
    top: int


@dataclass(frozen=True)
class Built:
    """The page, notes about it, and the figures in it, to be written to files."""

    html: str
    summary: str
    data: dict[str, Any]
    traces: dict[str, Gathered]


def build(
    traces: Sequence[tuple[Trace, Calibrated]],
    studies: Sequence[Path],
    options: Options,
    progress: Callable[[int], None] | None = None,
) -> Built:
    """Gathers, compares and renders. Raises `QjouleError` and `UsageError`."""
    trace_names = names([trace.path for trace, _ in traces])
    results = {
        name: gather(trace, options.by, options.idle, calibrated=calibrated, progress=progress)
        for name, (trace, calibrated) in zip(trace_names, traces, strict=True)
    }
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "parts": PARTS,
        "traces": [trace_data(name, result, options.top) for name, result in results.items()],
        "comparisons": compared({name: result.attribution for name, result in results.items()}),
        "studies": [study_data(path) for path in studies],
    }
    heads: list[dict[str, Any]] = [
        about(name, result.attribution) for name, result in results.items()
    ]
    title = clean(" · ".join([*trace_names, *(path.resolve().name for path in studies)]), 200)
    html = page(data, heads, f"{title}: joules")
    grades = {head["grade"] for head in heads}
    grades |= {grade for study in data["studies"] for grade in study["grades"]}
    idle = {head["idle"] for head in heads}
    idle |= {policy for study in data["studies"] for policy in study["idle_policies"]}
    summary = f"grade {', '.join(sorted(grades))} · idle {', '.join(sorted(idle))}"
    return Built(html, summary, data, results)


def names(paths: Sequence[Path]) -> list[str]:
    """Short and distinct names: directory names, or paths where these are equal."""
    short = [path.resolve().name for path in paths]
    out: list[str] = []
    for path, name in zip(paths, short, strict=True):
        stem = name if short.count(name) == 1 else as_given(str(path))
        number = 2
        unique = stem
        while unique in out:
            unique, number = f"{stem} ({number})", number + 1
        out.append(unique)
    return out
