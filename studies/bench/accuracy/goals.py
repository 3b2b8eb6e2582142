# SPDX-License-Identifier: Apache-2.0
"""What the figures of each family should be, and docs/accuracy.md, which shows both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from studies.bench.accuracy.family_report import (
    families_of,
    histories_of,
    of_family,
    percent,
    time_based,
)
from studies.bench.accuracy.figures import Figures, figures
from studies.bench.accuracy.outcomes import FRIENDLY, MEMORY, CaseResult

_HEAD = """# Accuracy

Made by `bench_accuracy.py --page` from what `make bench-accuracy` measured. All figures are of
simulated machines, where the truth is known. Their physics is written from published measurements
([PHYSICS.md](../studies/bench/accuracy/PHYSICS.md)), not from the model, and those who develop the
model do not read the machines of the family *unseen*. No figure here is of a real energy counter.

- **mean error**, **worst**: of a statement's joules, over all statements and cases.
- **held**: how many 95 % intervals contain the truth; **half width**: of these intervals.
- **worse than time**: cases in which the best division by CPU time would have been better. It is
  given the power at rest that a calibration found.
- **than time alone**: the same where it is not given that, as with Kepler, Scaphandre, or CPU time
  above the least power seen.
- **after a minute at rest**: the machine idled for a minute before the load.

A figure in bold misses its goal, which stands in brackets.
"""


@dataclass(frozen=True)
class Goal:
    """Upper bounds of errors and widths, and bounds of coverage, as fractions; None: no goal.

    `worse`: cases that may be worse than the best time-based method; `worse_alone`: than the best
    of those that are not given the power at rest.
    """

    mean: float | None = None
    worst: float | None = None
    held: tuple[float, float] = (0.92, 0.98)
    width: float | None = 0.05
    worse: int | None = None
    worse_alone: int | None = None


#: By method, and by family; "" is every other family.
GOALS: dict[str, dict[str, Goal]] = {
    "qjoule": {
        FRIENDLY: Goal(mean=0.012, worst=0.05),
        "unseen": Goal(mean=0.03, worst=0.10, held=(0.90, 1.0)),
        "": Goal(mean=0.03, worst=0.10),
    },
    "rested": {"": Goal(mean=0.025, held=(0.90, 1.0), worse=0)},
    "uncalibrated": {"": Goal(mean=0.025, held=(0.90, 1.0), worse_alone=0)},
    "qjoule_time": {"": Goal(held=(0.90, 1.0))},
    "rested_time": {"": Goal(mean=0.04, held=(0.90, 1.0), worse=0)},
    "uncalibrated_time": {"": Goal(mean=0.04, held=(0.90, 1.0), worse_alone=0)},
    MEMORY: {"": Goal(mean=0.02)},
}
_TITLES = {
    "qjoule": "calibrated",
    "rested": "not calibrated, after a minute at rest",
    "uncalibrated": "not calibrated, never idle",
    "qjoule_time": "calibrated, no counters",
    "rested_time": "not calibrated, after a minute at rest, no counters",
    "uncalibrated_time": "not calibrated, never idle, no counters",
    MEMORY: "not calibrated, with memory",
}


def goal_of(method: str, family: str) -> Goal:
    """The goal of a method on a family."""
    by_family = GOALS[method]
    return by_family.get(family, by_family[""])


def missed(reached: Figures, goal: Goal) -> list[str]:
    """Which goals the figures do not reach: "mean", "worst", "held", "width", "time",
    "alone"."""
    low, high = goal.held
    checks = {
        "mean": goal.mean is not None and reached.case_mean > goal.mean,
        "worst": goal.worst is not None and reached.case_worst > goal.worst,
        "held": reached.share is not None and not low <= reached.share <= high,
        "width": goal.width is not None
        and reached.width is not None
        and reached.width > goal.width,
        "time": _too_many(reached.worse, goal.worse),
        "alone": _too_many(reached.worse_alone, goal.worse_alone),
    }
    return [name for name, is_missed in checks.items() if is_missed]


def _too_many(count: int, most: int | None) -> bool:
    return most is not None and count > most


def verdicts(results: Sequence[CaseResult]) -> list[str]:
    """Each family's figures beside its goals, as lines; nothing passes or fails."""
    lines = ["Goals, and what was reached (errors by case, mean / worst, %)"]
    for method in GOALS:
        for family in families_of(results):
            reached = figures(_rows(results, family, method), method)
            if reached is None:
                continue
            goal, bad = goal_of(method, family), missed(reached, goal_of(method, family))
            goal_text = f"{percent(goal.mean)} / {percent(goal.worst)}"
            reached_text = f"{percent(reached.case_mean)} / {percent(reached.case_worst)}"
            text = f"  {_TITLES[method]}, {family}: {reached_text} (goal {goal_text})"
            lines.append(text + (f"; missed: {', '.join(bad)}" if bad else ""))
    return lines


def page(results: Sequence[CaseResult]) -> str:
    """docs/accuracy.md, in Markdown."""
    lines = [_HEAD]
    for method in GOALS:
        rows = [row for family in families_of(results) if (row := _row(results, method, family))]
        if not rows:
            continue
        lines += [f"## {_TITLES[method].capitalize()}", ""]
        titles = "machines|cases|mean error|worst|held|half width|worse than time|than time alone"
        lines += [
            f"| {titles.replace('|', ' | ')} |",
            "|---|--:|--:|--:|--:|--:|--:|--:|",
            *rows,
            "",
        ]
    times = []
    for family in families_of(results):
        if (best := time_based(results, family)) is not None:
            times.append(f"{family} {percent(best[1].case_mean)} % ({best[0]})")
    if times:
        lines += [f"Mean error of the best time-based method: {', '.join(times)}.", ""]
    return "\n".join([*lines, _seeds(results)])


def _rows(results: Sequence[CaseResult], family: str, method: str) -> list[CaseResult]:
    """The cases that a method's figures are about."""
    if method == MEMORY:
        return histories_of(results, family)
    return of_family(results, family, counters=not method.endswith("_time"))


def _row(results: Sequence[CaseResult], method: str, family: str) -> str:
    reached = figures(_rows(results, family, method), method)
    if reached is None:
        return ""
    goal = goal_of(method, family)
    bad = missed(reached, goal)

    def cell(name: str, text: str, goal_text: str) -> str:
        cell_text = f"**{text}**" if name in bad else text
        return f"{cell_text} ({goal_text})" if goal_text else cell_text

    low, high = (percent(bound, 0) for bound in goal.held)
    cells = [
        family.replace("_", " "),
        str(reached.cases),
        cell("mean", f"{percent(reached.case_mean)} %", _most(goal.mean)),
        cell("worst", f"{percent(reached.case_worst)} %", _most(goal.worst)),
        cell("held", f"{percent(reached.share)} %", f"{low} to {high}"),
        cell("width", f"{percent(reached.width)} %", _most(goal.width)),
        cell("time", f"{reached.worse} of {reached.compared}", _count(goal.worse)),
        cell("alone", f"{reached.worse_alone} of {reached.compared}", _count(goal.worse_alone)),
    ]
    return f"| {' | '.join(cells)} |"


def _most(value: float | None) -> str:
    return "" if value is None else f"≤ {percent(value)}"


def _count(value: int | None) -> str:
    return "" if value is None else str(value)


def _seeds(results: Sequence[CaseResult]) -> str:
    seeds = sorted({result.seed for result in results})
    scenarios = len({result.scenario for result in results})
    span = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else str(seeds[0])
    return f"Seeds {span} of {scenarios} scenarios, {len(results)} cases, all simulated."
