# SPDX-License-Identifier: Apache-2.0
"""Performance against energy efficiency over the configurations of a study, and who wins in which.

After D. Tsirogiannis, S. Harizopoulos, M. A. Shah, Analyzing the energy efficiency of a database
server, SIGMOD 2010, equation 1 and figures 3 and 14 to 17: efficiency is operations per joule of
the whole machine, performance is operations per second. Their finding was that the fastest
configuration is typically the most efficient one; `verdict` says whether it is so here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from qjoule.api import QjouleError
from qjoule.api.command import FACTOR
from qjoule_studies.estimates import Estimate, factors_of, geometric_mean, one_of, ratio
from qjoule_studies.proportionality import efficiency, usable

Array = npt.NDArray[np.float64]


def pareto_front(performance: Array, energy_efficiency: Array) -> npt.NDArray[np.bool_]:
    """Which points no other point beats: none is as good in both and better in one.

    Shapes: (points,) each; the more the better. Equal points are on the front together.
    """
    front = np.zeros(len(performance), bool)
    best, last = -np.inf, (np.nan, np.nan)
    # From the fastest; of equally fast ones the most efficient first.
    for place in np.lexsort((-energy_efficiency, -performance)):
        point = (float(performance[place]), float(energy_efficiency[place]))
        if point[1] > best or point == last:
            front[place] = True
            best, last = point[1], point
    return front


Energy = Literal["machine", "attributed"]
Answer = Literal["yes", "no", "not separable", "unknown"]


@dataclass(frozen=True)
class Configuration:
    """The runs of one combination of levels.

    Attributes:
        label: `work_mem=64MB, parallel_workers=2`, of the factors that differ.
        performance: operations per second. efficiency: operations per joule. Geometric means.
        on_front: no other configuration's means beat it.
    """

    label: str
    factors: Mapping[str, object]
    runs: int
    performance: Estimate
    efficiency: Estimate
    on_front: bool


@dataclass(frozen=True)
class Verdict:
    """Whether the fastest configuration is the most efficient one.

    Attributes:
        answer: `yes` and `no` only where intervals separate all that the answer says; `unknown`
            where there are no intervals.
        gain: the most efficient one's operations per joule over the fastest one's.
        speed: the most efficient one's operations per second over the fastest one's.
    """

    answer: Answer
    text: str
    fastest: str
    most_efficient: str
    gain: Estimate
    speed: Estimate


@dataclass(frozen=True)
class Frontier:
    """Every configuration, fastest first, and the verdict."""

    configurations: tuple[Configuration, ...]
    verdict: Verdict
    energy: Energy
    skipped: int
    grade: str
    idle_policy: str
    energy_source: str


def frontier(runs: pd.DataFrame, energy: Energy = "machine") -> Frontier:
    """Performance and efficiency of every configuration of a study.

    Args:
        runs: of `read_runs`.
        energy: `machine`: all that the machine used, as in the source; `attributed`: what the
            target's queries and background were given.

    Raises:
        QjouleError: fewer than two configurations have runs with operations and energy, or runs of
            several grades, energy sources, idle policies or machines would be mixed.
    """
    good = usable(runs)
    good = good[pd.to_numeric(good["throughput"]).gt(0)]
    if energy == "attributed":
        good = good[pd.to_numeric(good["j_per_operation"], errors="coerce").gt(0)]
    names = factors_of(runs)
    columns = [FACTOR + name for name in names]
    groups = list(good.groupby(columns, sort=False, dropna=False)) if columns else []
    if len(groups) < 2:
        raise QjouleError("efficiency against performance needs runs of two configurations")
    samples = [
        (group["throughput"].to_numpy(float), _efficiency(group, energy)) for _, group in groups
    ]
    levels = [dict(zip(names, values, strict=True)) for values, _ in groups]
    varied = [name for name in names if len({str(each[name]) for each in levels}) > 1]
    labels = [", ".join(f"{name}={each[name]}" for name in varied) for each in levels]
    performance = [geometric_mean(speed) for speed, _ in samples]
    efficiencies = [geometric_mean(per_joule) for _, per_joule in samples]
    front = pareto_front(_values(performance), _values(efficiencies))
    configurations = [
        Configuration(label, level, len(group), speed, per_joule, bool(on))
        for label, level, (_, group), speed, per_joule, on in zip(
            labels, levels, groups, performance, efficiencies, front, strict=True
        )
    ]
    return Frontier(
        tuple(sorted(configurations, key=lambda each: -(each.performance.value or 0.0))),
        verdict(labels, samples),
        energy,
        len(runs) - len(good),
        one_of("grades", good["grade"]),
        one_of("idle policies", good["idle_policy"]),
        one_of("energy sources", good["energy_source"] + " of " + good["machine"]),
    )


def verdict(labels: Sequence[str], samples: Sequence[tuple[Array, Array]]) -> Verdict:
    """Was the fastest configuration the most efficient one?

    Args:
        labels: of the configurations, at least two.
        samples: of each, operations per second and per joule of its runs, shape (runs,) each,
            above 0.

    Intervals are Welch's of ratios. The answer rests on up to 2 (m - 1) of them for m
    configurations, so each has the confidence 1 - 0.05 / (2 (m - 1)) (Bonferroni).
    """
    confidence = 1 - 0.05 / (2 * (len(labels) - 1))
    fastest = _best([speed for speed, _ in samples])
    thrifty = _best([per_joule for _, per_joule in samples])

    def speed_of(first: int, second: int) -> Estimate:
        return ratio(samples[first][0], samples[second][0], confidence)

    def gain_of(first: int, second: int) -> Estimate:
        return ratio(samples[first][1], samples[second][1], confidence)

    others = [place for place in range(len(labels)) if place != fastest]
    # Who may be the fastest one, and who may be more efficient than it, as far as intervals say.
    rivals = [place for place in others if not _above_1(speed_of(fastest, place))]
    gain, speed = gain_of(thrifty, fastest), speed_of(thrifty, fastest)
    answer: Answer
    if min(min(map(len, sample)) for sample in samples) < 2:
        answer = "unknown"
    elif thrifty == fastest:
        unsure = [place for place in others if not _above_1(gain_of(fastest, place))]
        answer = "not separable" if rivals or unsure else "yes"
    else:
        may_be_fastest = [fastest, *rivals]
        surely = thrifty not in rivals and all(
            _above_1(gain_of(thrifty, place)) for place in may_be_fastest
        )
        answer = "no" if surely else "not separable"
    text = _in_words(answer, labels[fastest], labels[thrifty], gain, speed)
    return Verdict(answer, text, labels[fastest], labels[thrifty], gain, speed)


def _in_words(answer: Answer, fastest: str, thrifty: str, gain: Estimate, speed: Estimate) -> str:
    if fastest == thrifty:
        means = f"{fastest} was the fastest and did the most operations per joule"
    else:
        means = (
            f"{fastest} was the fastest, and {thrifty} did "
            f"{_change(gain, 'operations per joule')}, "
            f"with {_change(speed, 'operations per second')}"
        )
    if answer == "yes":
        return f"Yes: {means}."
    if answer == "no":
        return f"No: {means}."
    if answer == "unknown":
        return (
            f"It cannot be said: by single runs, {means}; repeat each configuration at least twice."
        )
    return f"The intervals do not separate it: by the means, {means}; more runs would tell."


def _change(estimate: Estimate, of_what: str) -> str:
    """A ratio as `12 % more operations (interval +3 to +22 %)`."""
    assert estimate.value is not None
    change = (estimate.value - 1) * 100
    change_text = f"{abs(change):.3g} % {'more' if change >= 0 else 'fewer'} {of_what}"
    if estimate.low is None or estimate.high is None:
        return change_text
    low, high = ((bound - 1) * 100 for bound in (estimate.low, estimate.high))
    return f"{change_text} (interval {low:+.3g} to {high:+.3g} %)"


def _above_1(estimate: Estimate) -> bool:
    return estimate.low is not None and estimate.low > 1


def _best(samples: Sequence[Array]) -> int:
    return int(np.argmax([np.log(each).mean() for each in samples]))


def _values(estimates: Sequence[Estimate]) -> Array:
    return np.array([each.value for each in estimates], float)


def _efficiency(runs: pd.DataFrame, energy: Energy) -> Array:
    if energy == "attributed":
        return 1 / runs["j_per_operation"].to_numpy(float)
    return efficiency(runs["throughput"].to_numpy(float), runs["power_w"].to_numpy(float))
