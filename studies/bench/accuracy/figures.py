# SPDX-License-Identifier: Apache-2.0
"""Figures over many cases: errors, coverage by shape and by machine, parts of the interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from studies.bench.accuracy.observed import DOMAIN
from studies.bench.accuracy.outcomes import CaseResult, Outcome
from studies.bench.accuracy.peers import PEERS

from qjoule.model.interval import Z95

BY_TIME = tuple(peer.name for peer in PEERS if not peer.by_counters)
#: Those that are not given the power at rest, as on a machine that nobody has calibrated.
BY_TIME_ALONE = tuple(p.name for p in PEERS if not p.by_counters and not p.told_rest)
#: A machine's intervals fail if they hold less than this share of its shapes.
ENOUGH = 0.85


@dataclass(frozen=True)
class Figures:
    """One method on the cases of one cell of a table; all errors and widths are fractions.

    `case_*`: error of a case, weighted by energy. `shape_*`: |estimate - truth| / truth of a shape.
    `held` of `shapes` intervals contain the truth; `low` to `high` is the 95 % interval of that
    share, with shapes of one machine counted as far as they fail together. `width`: median half
    width. `machine_worst`: smallest share held on one machine; `machines_below`: how many hold less
    than `ENOUGH`. `worse`: cases with a larger error than the best time-based method, of
    `compared`; `worse_alone`: than the best of those that are not given the power at rest. `parts`:
    median half width that each part of the interval has alone; `dominant`: the share of shapes for
    which it is the widest. Without intervals, these are empty or None.
    """

    cases: int
    case_mean: float
    case_worst: float
    shapes: int
    shape_mean: float
    shape_worst: float
    held: int
    low: float | None
    high: float | None
    width: float | None
    machine_worst: float | None
    machines_below: int
    worse: int
    compared: int
    worse_alone: int
    parts: dict[str, float]
    dominant: dict[str, float]

    @property
    def share(self) -> float | None:
        """Share of intervals that contain the truth; None without intervals."""
        return None if self.low is None else self.held / self.shapes


def wilson(hits: float, total: float) -> tuple[float, float]:
    """95 % interval of a share (Wilson, JASA 22, 1927). Raises `ValueError` without trials."""
    if total <= 0:
        raise ValueError("no trials")
    share, z2 = hits / total, Z95**2
    middle = share + z2 / (2 * total)
    half = Z95 * math.sqrt(share * (1 - share) / total + z2 / (4 * total**2))
    scale = 1 + z2 / total
    return max((middle - half) / scale, 0.0), min((middle + half) / scale, 1.0)


def share_by_machine(hits: Sequence[int], total: Sequence[int]) -> tuple[float, float]:
    """95 % interval of sum(hits) / sum(total) over machines whose shapes fail together.

    The variance of a ratio over clusters (Cochran, "Sampling Techniques", 1977, section 3.12) gives
    the number of independent shapes that would vary as much; Wilson's interval is for that number,
    which lies between the number of machines and that of shapes.
    """
    h, n = np.array(hits, float), np.array(total, float)
    machines, shapes = len(n), float(n.sum())
    if not shapes:
        raise ValueError("no trials")
    share = float(h.sum() / shapes)
    independent = shapes
    if machines > 1 and 0 < share < 1:
        variance = machines / (machines - 1) * float(((h - share * n) ** 2).sum()) / shapes**2
        independent = share * (1 - share) / max(variance, 1e-12)
        independent = min(max(independent, float(machines)), shapes)
    return wilson(share * independent, independent)


def figures(results: Sequence[CaseResult], method: str) -> Figures | None:
    """None if the method ran on none of the cases."""
    pairs = [(r, o) for r in results if (o := r.outcome(method)) is not None and DOMAIN in o.errors]
    if not pairs:
        return None
    outcomes = [outcome for _, outcome in pairs]
    cases = [outcome.errors[DOMAIN] for outcome in outcomes]
    errors = np.abs(np.concatenate([o.shape_errors for o in outcomes] or [[]]))
    hits = [sum(o.held) for o in outcomes if o.held]
    total = [len(o.held) for o in outcomes if o.held]
    low, high = share_by_machine(hits, total) if hits else (None, None)
    shares = [h / t for h, t in zip(hits, total, strict=True)]
    worse, compared = _worse(pairs, BY_TIME)
    widths = [width for o in outcomes for width in o.widths.get(DOMAIN, [])]
    parts, dominant = _parts(outcomes)
    return Figures(
        cases=len(cases),
        case_mean=float(np.mean(cases)),
        case_worst=max(cases),
        shapes=len(errors),
        shape_mean=float(errors.mean()) if len(errors) else math.nan,
        shape_worst=float(errors.max(initial=0.0)),
        held=sum(hits),
        low=low,
        high=high,
        width=float(np.median(widths)) if widths else None,
        machine_worst=min(shares, default=None),
        machines_below=sum(share < ENOUGH for share in shares),
        worse=worse,
        compared=compared,
        worse_alone=_worse(pairs, BY_TIME_ALONE)[0],
        parts=parts,
        dominant=dominant,
    )


def best_by_time(results: Sequence[CaseResult], names: Sequence[str] = BY_TIME) -> str | None:
    """The time-based method with the lowest mean error over these cases."""
    means = {}
    for name in names:
        errors = [
            o.errors[DOMAIN] for r in results if (o := r.outcome(name)) and DOMAIN in o.errors
        ]
        if errors:
            means[name] = float(np.mean(errors))
    return min(means, key=lambda name: means[name], default=None)


def _worse(pairs: Sequence[tuple[CaseResult, Outcome]], names: Sequence[str]) -> tuple[int, int]:
    """Cases that are worse than the best of these methods in their scenario, of how many."""
    worse = compared = 0
    for scenario in dict.fromkeys(result.scenario for result, _ in pairs):
        scenario_pairs = [(r, o) for r, o in pairs if r.scenario == scenario]
        best = best_by_time([result for result, _ in scenario_pairs], names)
        for result, outcome in scenario_pairs:
            other = result.outcome(best) if best else None
            if other is not None and DOMAIN in other.errors:
                compared += 1
                worse += outcome.errors[DOMAIN] > other.errors[DOMAIN]
    return worse, compared


def _parts(outcomes: Sequence[Outcome]) -> tuple[dict[str, float], dict[str, float]]:
    """Median half width of each part, and the share of shapes for which it is the widest."""
    rows = [outcome.parts for outcome in outcomes if outcome.parts]
    if not rows or not any(map(len, rows[0].values())):
        return {}, {}
    names = list(rows[0])
    table = np.array([np.concatenate([row[name] for row in rows]) for name in names])
    widest = np.argmax(table, axis=0)
    return (
        {name: float(np.median(table[i])) for i, name in enumerate(names)},
        {name: float(np.mean(widest == i)) for i, name in enumerate(names)},
    )
