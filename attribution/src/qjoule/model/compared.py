# SPDX-License-Identifier: Apache-2.0
"""Compares the runs of B with those of A: GPS-UP and energy-delay product, with intervals.

For one statement on one machine with one calibration, the errors of the power model and of the
total are the same factor in every run: the statement does the same kind of work on both sides.
These errors are in each side's joules but cancel in their ratio. So the ratio's interval
consists of the differences between runs, and of what lost records may have changed.

Where the statements differ, the errors of their weights are added. Where machine, source or
calibration differ, nothing cancels: the runs' own intervals are then added whole, because no
number of runs averages those errors away.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from qjoule.model.arrays import F64
from qjoule.model.energy import Bool
from qjoule.model.gpsup import Comparison, Form, Interval, compare
from qjoule.model.repeated import (
    Figures,
    RunForms,
    differences,
    error_slack,
    figures,
    in_total,
    loss_slack,
    mean_of_runs,
    with_mean_parts,
)
from qjoule.model.run_ratios import LEVEL, LogRatios, log_ratios, simultaneous
from qjoule.model.same_total import without_total_error

METRICS = ("J/call", "latency", "EDP", "W")
ONE_RUN = "one run on a side: how much runs vary is not known"
#: Number of claims per row: on energy, pace and power.
_CLAIMS = 3


@dataclass(frozen=True)
class Compared:
    """One statement, or the total. A ratio above 1 is a gain of B; of powerup, a cost.

    Attributes:
        base, new: of A and B; with several runs geometric means, and all calls.
        runs: the number of runs of A and of B that have the statement.
        edp_gain: energy-delay product of A over B's: speedup * greenup.
        category: place in the plane of GPS-UP, or what cannot be separated.
        energy_differs: whether the joules do; None: not separable, or unknown.
        more_runs: runs each side needs until greenup's interval leaves out 1; inf: no number is
            enough; None: unknown.
        detectable: ratio of joules that these runs would find in 4 of 5 cases; None: unknown.
        flags: what a reader must know.
    """

    base: Form
    new: Form
    runs: tuple[int, int]
    speedup: float | None
    greenup: float | None
    powerup: float | None
    edp_gain: float | None
    speedup_ci95: Interval | None
    greenup_ci95: Interval | None
    powerup_ci95: Interval | None
    edp_gain_ci95: Interval | None
    category: str
    energy_differs: bool | None
    more_runs: float | None
    detectable: float | None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sides:
    """Two sides compared. `ratios` and `total_ratios`: B over A, by metric (`METRICS`)."""

    rows: list[Compared]
    total: Compared
    ratios: dict[str, LogRatios]
    total_ratios: dict[str, LogRatios]
    not_in_total: list[Form]  #: matched, but a run lacks them or their energy


def compare_sides(
    a: Sequence[RunForms], b: Sequence[RunForms], matched: Sequence[tuple[Form, Form]]
) -> Sides:
    """Compares `matched` statements (any form of A and of B that has the name) over all runs."""
    comparable = not differences([*a, *b])
    paired = [run.recording for run in a] == [run.recording for run in b]
    same_name = np.array([old.name == new.name for old, new in matched], dtype=bool)
    # All totals are wrong by the same factor (see the module's docstring).
    if comparable:
        a, b = (
            [replace(run, forms=[*map(without_total_error, run.forms)]) for run in side]
            for side in (a, b)
        )
    matched = list(
        zip(
            with_mean_parts([form for form, _ in matched], a),
            with_mean_parts([form for _, form in matched], b),
            strict=True,
        )
    )
    old = figures(a, [form.name for form, _ in matched])
    new = figures(b, [form.name for _, form in matched])
    ratios = _ratios(old, new, comparable & same_name, paired)
    total_old, total_new, in_every_run = in_total(old, new)
    total_ratios = _ratios(
        total_old, total_new, np.array([comparable and bool(same_name.all())]), paired
    )
    rows = _rows(old, new, ratios, matched)
    everything = [(Form("total", "all statements", 0, None, None, None),) * 2]
    total = _rows(total_old, total_new, total_ratios, everything)[0]
    left_out = [
        old_form for (old_form, _), is_in in zip(matched, in_every_run, strict=True) if not is_in
    ]
    return Sides(rows, total, ratios, total_ratios, left_out)


def _ratios(a: Figures, b: Figures, common: Bool, paired: bool) -> dict[str, LogRatios]:
    slack = np.where(common, loss_slack(a, b), error_slack(a, b))
    energy = {"J/call": (a.j_per_call, b.j_per_call), "EDP": (a.edp, b.edp)}
    energy["W"] = (a.power, b.power)
    ratios = {
        name: log_ratios(old, new, slack=slack, paired=paired)
        for name, (old, new) in energy.items()
    }
    ratios["latency"] = log_ratios(a.latency_ns, b.latency_ns, paired=paired)
    return {name: ratios[name] for name in METRICS}


def _rows(
    a: Figures,
    b: Figures,
    ratios: dict[str, LogRatios],
    matched: Sequence[tuple[Form, Form]],
) -> list[Compared]:
    level = simultaneous(LEVEL, _CLAIMS * len(matched))
    ends = {name: ratios[name].interval() for name in METRICS}
    simultaneous_ends = {name: ratios[name].interval(level) for name in METRICS}
    energy = ratios["J/call"]
    more_runs, detectable = energy.more_runs(level=level), energy.detectable(level)
    old_forms = _pooled([form for form, _ in matched], a)
    new_forms = _pooled([form for _, form in matched], b)
    run_counts = [(~np.isnan(figures_of.calls)).sum(axis=1).tolist() for figures_of in (a, b)]
    rows = []
    for i, (base, new) in enumerate(zip(old_forms, new_forms, strict=True)):
        runs = (run_counts[0][i], run_counts[1][i])
        flags = _some_runs(runs, (a.calls.shape[1], b.calls.shape[1]))
        if min(runs) < 2:
            rows.append(_of_one_run(compare(base, new), runs, flags))
            continue
        row_ends = {
            name: (float(simultaneous_ends[name][0][i]), float(simultaneous_ends[name][1][i]))
            for name in METRICS
        }
        estimate = {name: float(np.exp(ratios[name].estimate[i])) for name in METRICS}
        ci95 = {name: (float(ends[name][0][i]), float(ends[name][1][i])) for name in METRICS}
        rows.append(
            Compared(
                base,
                new,
                runs,
                speedup=_inverse(estimate["latency"]),
                greenup=_inverse(estimate["J/call"]),
                powerup=_finite(estimate["W"]),
                edp_gain=_inverse(estimate["EDP"]),
                speedup_ci95=_inverse_ends(ci95["latency"]),
                greenup_ci95=_inverse_ends(ci95["J/call"]),
                powerup_ci95=_known_ends(ci95["W"]),
                edp_gain_ci95=_inverse_ends(ci95["EDP"]),
                category=_category(row_ends),
                energy_differs=True if _side(row_ends["J/call"]) else None,
                more_runs=_finite(float(more_runs[i]), infinite=True),
                detectable=_finite(float(detectable[i])),
                flags=flags,
            )
        )
    return rows


def _of_one_run(comparison: Comparison, runs: tuple[int, int], flags: tuple[str, ...]) -> Compared:
    """Single runs compared by their own intervals, without the variation between runs."""
    gains, ends = (
        (comparison.speedup, comparison.greenup),
        (comparison.speedup_ci95, comparison.greenup_ci95),
    )
    edp_gain = gains[0] * gains[1] if gains[0] and gains[1] else None
    edp_ends = None
    if edp_gain and ends[1]:
        faster = ends[0] or (gains[0], gains[0])
        edp_ends = ((faster[0] or 0.0) * ends[1][0], (faster[1] or 0.0) * ends[1][1])
    is_separate = comparison.category not in ("unknown", "energy not separable")
    return Compared(
        comparison.base,
        comparison.new,
        runs,
        comparison.speedup,
        comparison.greenup,
        comparison.powerup,
        edp_gain,
        comparison.speedup_ci95,
        comparison.greenup_ci95,
        comparison.powerup_ci95,
        edp_ends,
        _without_power(comparison),
        True if is_separate else None,
        None,
        None,
        (*flags, ONE_RUN),
    )


def _without_power(comparison: Comparison) -> str:
    """The category; its word on power is kept only where the interval of powerup leaves out 1."""
    energy_and_pace, comma, power = comparison.category.partition(", ")
    low, high = comparison.powerup_ci95 or (-math.inf, math.inf)
    return (
        energy_and_pace + comma + ("power not separable" if comma and low <= 1 <= high else power)
    )


def _category(ends: dict[str, Interval]) -> str:
    """The category, from intervals of B over A that hold for all statements together."""
    energy = _side(ends["J/call"])
    if any(math.isnan(end) for end in ends["J/call"]):
        return "unknown"
    if not energy:
        return "energy not separable"
    pace = {-1: "faster", 1: "slower", 0: "pace not separable"}[_side(ends["latency"])]
    power = {-1: "less power", 1: "more power", 0: "power not separable"}[_side(ends["W"])]
    return f"{'green' if energy < 0 else 'red'}: {pace}, {power}"


def _side(ends: Interval) -> int:
    """-1: surely below 1; 1: surely above; 0: not known."""
    return -1 if ends[1] < 1 else 1 if ends[0] > 1 else 0


def _pooled(forms: Sequence[Form], side: Figures) -> list[Form]:
    """Each form with the geometric means of its runs, and the sum of their calls."""
    means = (_geometric(v) for v in (side.j_per_call, side.low_j, side.high_j, side.latency_ns))
    columns = (*means, mean_of_runs(side.loss_share), np.nansum(side.calls, axis=1))
    pooled = []
    for form, (j_per_call, low, high, latency_ns, loss, calls) in zip(
        forms, np.stack(columns, axis=1).tolist(), strict=True
    ):
        pooled.append(
            replace(
                form,
                calls=int(calls),
                j_per_call=_finite(j_per_call),
                j_per_call_ci95=_known_ends((low, high)),
                latency_ns_mean=_finite(latency_ns),
                loss_share=loss,
            )
        )
    return pooled


def _geometric(values: F64) -> F64:
    """Mean over the runs that have it, (n,); NaN where none has."""
    is_known = ~np.isnan(values)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(is_known, np.log(values), 0.0).sum(axis=1) / is_known.sum(axis=1)
    means: F64 = np.exp(logs)
    return means


def _some_runs(runs: tuple[int, int], all_runs: tuple[int, int]) -> tuple[str, ...]:
    return tuple(
        f"in {present} of {total} runs of {side}"
        for side, present, total in zip("AB", runs, all_runs, strict=True)
        if present < total
    )


def _finite(value: float, *, infinite: bool = False) -> float | None:
    return None if math.isnan(value) or (math.isinf(value) and not infinite) else value


def _known_ends(ends: Interval) -> Interval | None:
    return None if any(math.isnan(end) for end in ends) else ends


def _inverse(value: float) -> float | None:
    return 1 / value if value > 0 else None


def _inverse_ends(ends: Interval) -> Interval | None:
    if any(math.isnan(end) for end in ends):
        return None
    low, high = ends
    return (1 / high if high > 0 else math.inf, 1 / low if low > 0 else math.inf)
