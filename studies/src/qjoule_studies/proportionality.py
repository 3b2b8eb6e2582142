# SPDX-License-Identifier: Apache-2.0
"""Energy proportionality: how closely power follows load.

Pure functions on arrays, and their results for a table of runs of the workload `load`
(`qjoule.report.study_runs.read_runs`). Load is 0 to 1 of the peak, power is the whole machine's.

- Idle share P_idle / P_peak, dynamic range (P_peak - P_idle) / P_peak: L. A. Barroso, U. Hölzle,
  The case for energy-proportional computing, IEEE Computer 40(12), 2007.
- Proportionality index EP = 1 - (A - A_ideal) / A_ideal, where A is the area below the curve of
  P / P_peak over load, and A_ideal = 1/2 that of power proportional to load: 1 is proportional,
  0 is the same power whatever the load. F. Ryckbosch, S. Polfliet, L. Eeckhout, Trends in server
  energy proportionality, IEEE Computer 44(9), 2011.
- Linear deviation LD = A / A_linear - 1, of the straight line from idle to peak: above 0 the curve
  lies above it. D. Wong, M. Annavaram, KnightShift, MICRO 2012; C.-H. Hsu, S. W. Poole use both.
- Relative efficiency: relative load / relative power, 1 at the peak; T. Härder's WattDB.

Areas are by the trapezoidal rule over the levels that were measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.integrate import trapezoid

from qjoule.api import QjouleError
from qjoule.api.command import FACTOR
from qjoule_studies.estimates import (
    UNKNOWN,
    Estimate,
    draws_of_mean,
    factors_of,
    mean,
    of_draws,
    one_of,
)

Array = npt.NDArray[np.float64]

_DRAWS = 10_000
_BEHIND = 0.95  # of what should have been answered: less than that is saturated


def efficiency(throughput: Array, power_w: Array) -> Array:
    """Operations per joule, from operations per second; NaN where the power is unknown or 0.

    Shapes: equal, any.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.asarray(throughput, float) / np.asarray(power_w, float)
    return np.where(np.isfinite(ratio), ratio, np.nan)


def dynamic_range(idle_w: Array, peak_w: Array) -> Array:
    """(P_peak - P_idle) / P_peak; 1 - the idle share."""
    range_: Array = (peak_w - idle_w) / peak_w
    return range_


def proportionality_index(load: Array, power_w: Array) -> Array:
    """EP of a curve from load 0 to load 1.

    Args:
        load: shape (levels,), ascending from 0 to 1. power_w: shape (levels,) or (levels, curves).

    Returns:
        Shape () or (curves,).
    """
    ideal = 0.5
    index: Array = 1 - (_area(load, power_w) - ideal) / ideal
    return index


def linear_deviation(load: Array, power_w: Array) -> Array:
    """LD of a curve; arguments and result as of `proportionality_index`."""
    linear = (power_w[0] / power_w[-1] + 1) / 2
    deviation: Array = _area(load, power_w) / linear - 1
    return deviation


def relative_efficiency(load: Array, power_w: Array) -> Array:
    """Relative load over power relative to the last level; as of `proportionality_index`."""
    relative = power_w / power_w[-1]
    efficiencies: Array = (load if relative.ndim == 1 else load[:, None]) / relative
    return efficiencies


def _area(load: Array, power_w: Array) -> Array:
    if load[0] != 0 or load[-1] != 1 or (np.diff(load) <= 0).any():
        raise ValueError("load goes up from 0 to 1")
    area: Array = trapezoid(power_w / power_w[-1], load, axis=0)
    return area


@dataclass(frozen=True)
class Level:
    """The runs at one level of load.

    Attributes:
        percent: of the peak that arrived.
        throughput: operations per second that were answered.
        machine_j_per_operation: of all energy, idle included; unknown where nothing was done.
        j_per_operation: of the energy that is attributed to queries and background.
        relative_efficiency: 1 at 100 %.
        saturated: less was answered than arrived, by the level of 100 %.
    """

    percent: float
    runs: int
    throughput: Estimate
    power_w: Estimate
    machine_j_per_operation: Estimate
    j_per_operation: Estimate
    relative_efficiency: Estimate
    saturated: bool


@dataclass(frozen=True)
class Proportionality:
    """The figures of one configuration over its levels.

    Attributes:
        configuration: the other factors of its runs.
        skipped: runs that failed or whose power is unknown.
        missing: why figures are unknown, a line each.
    """

    configuration: Mapping[str, object]
    levels: tuple[Level, ...]
    idle_share: Estimate
    dynamic_range: Estimate
    index: Estimate
    linear_deviation: Estimate
    skipped: int
    missing: tuple[str, ...]
    grade: str
    idle_policy: str
    energy_source: str


def proportionality(runs: pd.DataFrame, factor: str = "level") -> list[Proportionality]:
    """The proportionality of each configuration of a study of load.

    Args:
        runs: of `read_runs`. factor: whose levels are percent of the peak.

    Raises:
        QjouleError: there is no such factor, its levels are no numbers, or runs of several grades,
            energy sources, idle policies or machines would be mixed.
    """
    column, factors = FACTOR + factor, factors_of(runs)
    if factor not in factors:
        raise QjouleError(
            f"the study has no factor {factor}: it has {', '.join(factors) or 'none'}"
        )
    if pd.to_numeric(runs[column], errors="coerce").isna().any():
        raise QjouleError(f"the levels of {factor} are not all percentages")
    others = [name for name in factors if name != factor]
    if not others:
        return [_of_one(runs, column, {})]
    return [
        _of_one(
            group,
            column,
            dict(zip(others, levels, strict=True)),
        )
        for levels, group in runs.groupby(
            [FACTOR + name for name in others], sort=False, dropna=False
        )
    ]


def usable(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs that are done and whose power and throughput are known."""
    power = pd.to_numeric(runs["power_w"], errors="coerce")
    rate = pd.to_numeric(runs["throughput"], errors="coerce")
    return runs[(runs["status"] == "done") & power.gt(0) & rate.notna()]


def _of_one(runs: pd.DataFrame, column: str, configuration: dict[str, object]) -> Proportionality:
    good = usable(runs)
    if good.empty:
        raise QjouleError("no run that is done has a power: see 'qjoule doctor'")
    percent = pd.to_numeric(good[column])
    groups = {float(level): good[percent == level] for level in sorted(percent.unique())}
    rng = np.random.default_rng(0)
    draws = {level: draws_of_mean(_power(group), _DRAWS, rng) for level, group in groups.items()}
    means = {level: float(_power(group).mean()) for level, group in groups.items()}
    curve = [level for level in groups if 0 <= level <= 100]
    load = np.array(curve) / 100
    power = np.array([means[level] for level in curve])
    power_draws = np.array([draws[level] for level in curve])

    idle, peak = (0.0 in groups), (100.0 in groups)
    missing = [] if idle else ["no run at 0 %: the idle power is not known"]
    missing += [] if peak else ["no run at 100 %: the peak's power is not known"]
    if idle and peak and len(curve) < 3:
        missing.append("no level between 0 and 100 %: the curve is not known")
    both_ends = idle and peak
    shape = both_ends and len(curve) >= 3
    range_, index, deviation = (
        of_draws(float(find(load, power)), find(load, power_draws)) if defined else UNKNOWN
        for defined, find in (
            (both_ends, lambda _load, p: dynamic_range(p[0], p[-1])),
            (shape, proportionality_index),
            (shape, linear_deviation),
        )
    )
    relative = _relative(load, power, power_draws) if peak else [UNKNOWN] * len(curve)
    of_level = dict(zip(curve, relative, strict=True))
    at_peak = float(groups[100.0]["throughput"].astype(float).mean()) if peak else np.nan
    return Proportionality(
        configuration,
        tuple(
            _level(level, group, of_level.get(level, UNKNOWN), at_peak)
            for level, group in groups.items()
        ),
        _one_minus(range_),
        range_,
        index,
        deviation,
        len(runs) - len(good),
        tuple(missing),
        one_of("grades", good["grade"]),
        one_of("idle policies", good["idle_policy"]),
        one_of("energy sources", good["energy_source"] + " of " + good["machine"]),
    )


def _level(level: float, runs: pd.DataFrame, relative: Estimate, at_peak: float) -> Level:
    throughput = mean(runs["throughput"].to_numpy(float))
    answered = throughput.value or 0.0
    own = pd.to_numeric(runs["j_per_operation"], errors="coerce").to_numpy(float)
    per_joule = efficiency(runs["throughput"].to_numpy(float), _power(runs))
    with np.errstate(divide="ignore"):
        machine = np.where(per_joule > 0, 1 / per_joule, np.nan)
    return Level(
        level,
        len(runs),
        throughput,
        mean(_power(runs)),
        mean(machine),
        mean(own),
        relative,
        bool(answered < _BEHIND * at_peak * level / 100),
    )


def _relative(load: Array, power: Array, draws: Array) -> list[Estimate]:
    values, drawn = relative_efficiency(load, power), relative_efficiency(load, draws)
    return [of_draws(float(value), each) for value, each in zip(values, drawn, strict=True)]


def _power(runs: pd.DataFrame) -> Array:
    return runs["power_w"].to_numpy(float)


def _one_minus(estimate: Estimate) -> Estimate:
    if estimate.value is None:
        return UNKNOWN
    if estimate.low is None or estimate.high is None:
        return Estimate(1 - estimate.value)
    return Estimate(1 - estimate.value, 1 - estimate.high, 1 - estimate.low)
