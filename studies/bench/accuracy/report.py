# SPDX-License-Identifier: Apache-2.0
"""Prints the results of the cases: tables of errors and intervals, and the targets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from studies.bench.accuracy.figures import BY_TIME, wilson
from studies.bench.accuracy.harness import METHODS, OWN
from studies.bench.accuracy.observed import DOMAIN
from studies.bench.accuracy.outcomes import CaseResult
from studies.bench.accuracy.peers import PEERS

#: Power and time differ in a case if dividing its energy by CPU time would have at least this
#: error.
DIFFER = 0.10
_OTHERS = tuple(peer.name for peer in PEERS)


@dataclass(frozen=True)
class Errors:
    """Mean and 95th percentile over cases, and how many there were."""

    mean: float
    p95: float
    cases: int


@dataclass(frozen=True)
class Coverage:
    """How many intervals contain the truth, and the Wilson interval (`low`, `high`) of their share.

    `width`: the median of half an interval divided by the truth.
    """

    covered: int
    total: int
    low: float
    high: float
    width: float

    @property
    def share(self) -> float:
        return self.covered / self.total


class Summary:
    """All results, by method and scenario."""

    def __init__(self, results: Iterable[CaseResult]) -> None:
        self.results = tuple(results)
        self.scenarios = tuple(dict.fromkeys(r.scenario for r in self.results))
        present = {o.method for r in self.results for o in r.outcomes}
        self.methods = tuple(name for name in METHODS if name in present)

    def values(self, method: str, scenario: str, kind: str = DOMAIN) -> list[float]:
        """Errors of a method on the cases of a scenario; `kind`: a domain, or "queries"."""
        return [
            outcome.errors[kind]
            for result in self.results
            if result.scenario == scenario
            for outcome in result.outcomes
            if outcome.method == method and kind in outcome.errors
        ]

    def errors(self, method: str, scenario: str, kind: str = DOMAIN) -> Errors | None:
        """None if the method could not run."""
        values = self.values(method, scenario, kind)
        if not values:
            return None
        return Errors(float(np.mean(values)), float(np.percentile(values, 95)), len(values))

    def coverage(self, method: str, scenario: str, domain: str = DOMAIN) -> Coverage | None:
        """Coverage over all shapes of all cases of a scenario. Shapes of one case are not
        independent.
        """
        outcomes = [
            outcome
            for result in self.results
            if result.scenario == scenario
            for outcome in result.outcomes
            if outcome.method == method and outcome.intervals.get(domain)
        ]
        total = sum(outcome.intervals[domain] for outcome in outcomes)
        if not total:
            return None
        covered = sum(outcome.covered[domain] for outcome in outcomes)
        widths = [width for outcome in outcomes for width in outcome.widths[domain]]
        return Coverage(covered, total, *wilson(covered, total), float(np.median(widths)))

    def best(self, methods: Sequence[str], scenario: str) -> tuple[str, Errors] | None:
        """The method with the lowest mean error in a scenario."""
        by_method = [(m, e) for m in methods if (e := self.errors(m, scenario)) is not None]
        return min(by_method, key=lambda pair: pair[1].mean, default=None)

    def counted(self) -> tuple[str, ...]:
        """Scenarios in which hardware counters were read."""
        by_counters = [peer.name for peer in PEERS if peer.by_counters]
        if not set(by_counters) & set(self.methods):
            return tuple(s for s in self.scenarios if s != "no_counters")
        return tuple(s for s in self.scenarios if self.best(by_counters, s) is not None)

    def differing(self) -> Summary:
        """Only the cases in which power and time differ."""
        return Summary(result for result in self.results if result.spread >= DIFFER)


def render(summary: Summary, width: int = 80) -> list[str]:
    """The whole report as lines of at most `width` columns, or 72 where it is less."""
    width = max(width, 72)
    if not summary.results:
        return ["No case was run."]
    lines = ["Error over query shapes, package energy, %: mean / 95th percentile", ""]
    lines += _error_table(summary, width)
    if not set(OWN) & set(summary.methods):
        return lines
    lines += ["", "95 % intervals of query shapes: share that holds the truth, half width", ""]
    lines += _interval_table(summary)
    if "qjoule" in summary.methods:
        lines += ["", "DRAM and single queries: mean error, %", "", *_other_table(summary)]
        lines += ["", *targets(summary)]
    return [*lines, "", *_sameness(summary)]


def _error_table(summary: Summary, width: int) -> list[str]:
    """Methods as rows, scenarios as columns, in as many blocks as the width requires."""
    first, cell = 18, 13
    across = max((width - first) // cell, 1)
    lines = []
    for begin in range(0, len(summary.scenarios), across):
        block = summary.scenarios[begin : begin + across]
        lines.append(" " * first + "".join(f"{name[: cell - 1]:>{cell}}" for name in block))
        for method in summary.methods:
            cells = [_percents(summary.errors(method, scenario)) for scenario in block]
            lines.append(f"{method:<{first}}" + "".join(f"{text:>{cell}}" for text in cells))
        lines.append("")
    return lines[:-1]


def _percents(errors: Errors | None) -> str:
    if errors is None:
        return "n/a"
    # Decimals are noise where the error is as large as the value.
    return "/".join(f"{100 * e:.{int(e < 1)}f}" for e in (errors.mean, errors.p95))


def _interval_table(summary: Summary) -> list[str]:
    own = [name for name in OWN if name in summary.methods]
    first = 27
    lines = []
    for name in own:
        lines.append(f"{name:<{first}}{'held':>7}{'of 95 % of':>14}{'width':>9}{'shapes':>9}")
        for scenario in summary.scenarios:
            if (coverage := summary.coverage(name, scenario)) is None:
                continue
            wilson_text = f"{100 * coverage.low:.1f}-{100 * coverage.high:.1f}"
            lines.append(
                f"  {scenario:<{first - 2}}{100 * coverage.share:>6.1f}%{wilson_text:>13}%"
                f"{100 * coverage.width:>8.1f}%{coverage.total:>9}"
            )
    return lines


def _other_table(summary: Summary) -> list[str]:
    """DRAM and single queries, for qjoule in its intended configuration."""
    first = 27
    lines = [f"{'':<{first}}{'dram':>8}{'held':>8}{'width':>8}{'by query':>10}"]
    for scenario in summary.scenarios:
        dram = summary.errors("qjoule", scenario, "dram")
        coverage = summary.coverage("qjoule", scenario, "dram")
        query = summary.errors("qjoule", scenario, "queries")
        cells = [
            "n/a" if dram is None else f"{100 * dram.mean:.1f}",
            "n/a" if coverage is None else f"{100 * coverage.share:.1f}%",
            "n/a" if coverage is None else f"{100 * coverage.width:.1f}%",
        ]
        last = "n/a" if query is None else f"{100 * query.mean:.1f}"
        lines.append(
            f"  {scenario:<{first - 2}}" + "".join(f"{c:>8}" for c in cells) + f"{last:>10}"
        )
    return lines


def targets(summary: Summary) -> list[str]:
    """Each target figure beside the figure reached. Nothing passes or fails."""
    lines = ["Targets, and what was reached"]
    counted = summary.counted()
    means = {s: e.mean for s in counted if (e := summary.errors("qjoule", s)) is not None}
    if means:
        worst = max(means, key=lambda s: means[s])
        lines.append(f"  mean error with counters <= 5 %: {100 * np.mean([*means.values()]):.1f} %")
        lines.append(f"  worst scenario <= 11 %: {100 * means[worst]:.1f} % ({worst})")
    lines += _without_counters(summary, counted)
    lines += _against_others(summary.differing(), counted)
    shares = {s: c for s in summary.scenarios if (c := summary.coverage("qjoule", s)) is not None}
    outside = {s: c.share for s, c in shares.items() if not 0.92 <= c.share <= 0.98}
    if shares:
        lines.append(
            f"  coverage 92 to 98 % in every scenario: in {len(shares) - len(outside)} of "
            f"{len(shares)}"
        )
        lines += [f"    not in {s}: {100 * share:.1f} %" for s, share in outside.items()]
    return lines


def _without_counters(summary: Summary, counted: Sequence[str]) -> list[str]:
    lines = []
    for scenario in summary.scenarios:
        own_errors, best = summary.errors("qjoule", scenario), summary.best(BY_TIME, scenario)
        if scenario in counted or own_errors is None or best is None:
            continue
        lines.append(f"  {scenario}: no worse than the best by time, {best[0]}:")
        lines.append(f"    {100 * own_errors.mean:.1f} % against {100 * best[1].mean:.1f} %")
    return lines


def _against_others(differing: Summary, counted: Sequence[str]) -> list[str]:
    """qjoule against the best other method in each scenario, and against the best one overall."""
    scenarios = [s for s in differing.scenarios if s in counted]
    pairs = [
        (own_errors.mean, best[1].mean)
        for s in scenarios
        if (own_errors := differing.errors("qjoule", s)) and (best := differing.best(_OTHERS, s))
    ]
    if not pairs:
        return []
    own_mean, best = np.mean(np.array(pairs), axis=0)
    overall = {
        m: float(np.mean([e.mean for s in scenarios if (e := differing.errors(m, s))]))
        for m in _OTHERS
        if m in differing.methods
    }
    best_method = min(overall, key=lambda m: overall[m])
    cases = sum(result.scenario in scenarios for result in differing.results)
    return [
        f"  half of the others' error where power and time differ ({cases} cases):",
        f"    {100 * own_mean:.1f} %; each scenario's best of the others {100 * best:.1f} %, "
        f"{best / max(own_mean, 1e-9):.1f} times",
        f"    best single one, {best_method}: {100 * overall[best_method]:.1f} %, "
        f"{overall[best_method] / max(own_mean, 1e-9):.1f} times",
    ]


def _sameness(summary: Summary) -> list[str]:
    """Conservation was checked in every run, determinism in the cases that ran twice."""
    twice = [result for result in summary.results if result.repeats is not None]
    same = sum(bool(result.repeats) for result in twice)
    cases = len(summary.results)
    lines = [f"Energy conserved to the nanojoule in all runs of {cases} cases"]
    if twice:
        lines.append(f"Run twice: {len(twice)} cases, {same} with the same bytes")
        lines.append(f"  the first: {twice[0].scenario} {twice[0].seed} {twice[0].digest[:16]}")
    return lines


def document(summary: Summary) -> dict[str, Any]:
    """All figures but the cases, for `--json`."""
    table: dict[str, Any] = {}
    for method in summary.methods:
        table[method] = {}
        for scenario in summary.scenarios:
            errors, coverage = summary.errors(method, scenario), summary.coverage(method, scenario)
            table[method][scenario] = {
                "error": None if errors is None else asdict(errors),
                "coverage": None
                if coverage is None
                else {**asdict(coverage), "share": coverage.share},
            }
    return {"methods": table, "targets": targets(summary)}
