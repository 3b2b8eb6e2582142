# SPDX-License-Identifier: Apache-2.0
"""A study in a page: the mean of every combination of levels, with its 95 % interval."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from qjoule.report.page_data import clean
from qjoule.report.study_runs import FACTOR, read_runs
from qjoule.reporters import format as fmt

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


def study_data(path: Path) -> dict[str, Any]:
    """The figures of the study in a directory. Raises `QjouleError` as `read_runs`."""
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


def means(done: pd.DataFrame, factors: list[str], measure: str) -> pd.DataFrame:
    """A row for each combination: its levels, `runs`, `mean`, `low` and `high` (95 %, Student's t).

    One run has no interval: its ends are missing.
    """
    import pandas as pd  # noqa: PLC0415
    from scipy import stats  # noqa: PLC0415

    known = done[done[measure].notna()]
    groups = known.groupby(factors, sort=False, dropna=False) if factors else [((), known)]
    rows = []
    for levels, group in groups:
        values = group[measure].astype(float)
        mean, low, high = values.mean(), None, None
        if len(values) > 1:
            half = stats.t.ppf(0.975, len(values) - 1) * values.sem()
            low, high = mean - half, mean + half
        named = dict(zip(factors, levels if isinstance(levels, tuple) else (levels,), strict=True))
        rows.append({**named, "runs": len(values), "mean": mean, "low": low, "high": high})
    return pd.DataFrame(rows, columns=[*factors, "runs", "mean", "low", "high"])


def _measure(
    done: pd.DataFrame, factors: list[str], name: str, title: str, unit: str
) -> dict[str, Any]:
    found = means(done, factors, name)
    rows = [
        {
            "levels": [clean(str(row[factor]), 200) for factor in factors],
            "runs": int(row["runs"]),
            "mean": _known(row["mean"]),
            "low": _known(row["low"]),
            "high": _known(row["high"]),
            "text": fmt.with_interval(
                _known(row["mean"]),
                None if _known(row["low"]) is None else (row["low"], row["high"]),
                unit,
            ),
        }
        for row in found.head(COMBINATIONS_MAX).to_dict("records")
    ]
    left_out = len(found) - len(rows)
    more = f" (the first {len(rows)} of {len(found)} combinations)" if left_out else ""
    return {"name": name, "title": title + more, "rows": rows}


def _known(value: Any) -> float | None:
    return float(value) if value is not None and fmt.is_known(float(value)) else None


def _values(runs: pd.DataFrame, column: str) -> list[Any]:
    return list(runs[column]) if column in runs.columns else []


def _distinct(runs: pd.DataFrame, column: str) -> list[str]:
    return sorted({clean(str(value), 60) for value in _values(runs, column) if value})


def _warnings(runs: pd.DataFrame) -> list[str]:
    """Differences between runs that make their joules not comparable."""
    names = {"grade": "grade", "idle_policy": "idle policy", "machine": "machine"}
    return [
        clean(f"Runs are not of one {what}: {', '.join(found)}.", 400)
        for column, what in names.items()
        if len(found := _distinct(runs, column)) > 1
    ]


def _problems(runs: pd.DataFrame) -> list[str]:
    out = []
    for row in runs.to_dict("records"):
        remarks = [str(row["status"])] if row["status"] != "done" else []
        remarks += [*map(str, row.get("flags") or ()), *filter(None, [row.get("problem")])]
        if remarks:
            out.append(clean(f"run {row['run']}: {', '.join(remarks)}", 400))
    return out[:PROBLEMS_MAX]
