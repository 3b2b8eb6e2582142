# SPDX-License-Identifier: Apache-2.0
"""Limits on the cost of B relative to A, and whether the runs keep them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from qjoule.errors import UsageError
from qjoule.model.compared import METRICS, ONE_RUN, Compared, Sides
from qjoule.model.gpsup import Interval
from qjoule.model.run_ratios import LEVEL, simultaneous

Status = Literal["passes", "regressed", "not separable"]

_LARGEST = 1000.0
_FORM = re.compile(r"\s*(J/call|latency|EDP|W)\s*<=\s*([0-9]+(?:\.[0-9]+)?)\s*")


@dataclass(frozen=True)
class Gate:
    """`metric` (one of `METRICS`) of B over that of A must be at most `limit`."""

    metric: str
    limit: float

    def __str__(self) -> str:
        return f"{self.metric} <= {self.limit:g}"


@dataclass(frozen=True)
class GateResult:
    """The result of one gate for one statement (or for the total).

    `ratio` is B over A; `ci95` its interval, None where it is unknown. `reason`: why it is not
    separable. `more_runs`: how many more runs each side needs; inf: no number is enough; None:
    unknown.
    """

    gate: Gate
    compared: Compared
    ratio: float | None
    ci95: Interval | None
    status: Status
    reason: str = ""
    more_runs: float | None = None


def parse_gates(texts: Sequence[str]) -> list[Gate]:
    """Gates as users write them: `J/call <= 1.05`.

    Raises `UsageError` for anything else, and for a metric that has a limit already.
    """
    gates: list[Gate] = []
    for text in texts:
        match = _FORM.fullmatch(text)
        limit = float(match[2]) if match else 0.0
        if match is None or not 0 < limit <= _LARGEST:
            raise UsageError(
                f"--gate {text!r} is no gate: write METRIC <= RATIO, where METRIC is one of "
                f"{', '.join(METRICS)}, and RATIO (B over A) is above 0 and at most {_LARGEST:g}"
            )
        if any(gate.metric == match[1] for gate in gates):
            raise UsageError(f"--gate {text!r}: {match[1]} has a limit already")
        gates.append(Gate(match[1], limit))
    return gates


def judge(gates: Sequence[Gate], sides: Sides, *, total: bool = False) -> list[GateResult]:
    """The result of each gate for each statement, or for the total only.

    Passes: the 95 % interval ends at or below the limit. Regressed: it begins above the limit, even
    when it is widened to hold for all statements and gates together (Bonferroni). Thus chance alone
    does not make one of many unchanged statements regress.
    """
    rows = [sides.total] if total else sides.rows
    ratios = sides.total_ratios if total else sides.ratios
    level = simultaneous(LEVEL, len(gates) * len(rows))
    results = []
    for gate in gates:
        log_ratios = ratios[gate.metric]
        low, high = log_ratios.interval()
        surely_above, more_runs = (
            log_ratios.interval(level)[0],
            log_ratios.more_runs(gate.limit, level),
        )
        for i, row in enumerate(rows):
            ratio = math.exp(log_ratios.estimate[i])
            result = GateResult(gate, row, ratio, (float(low[i]), float(high[i])), "not separable")
            results.append(_judged(result, float(surely_above[i]), float(more_runs[i])))
    return results


def _judged(result: GateResult, surely_above: float, more_runs: float) -> GateResult:
    """Returns `result`, whose ratio and interval may be NaN, with its status and the reason."""
    limit, interval = result.gate.limit, result.ci95
    if result.ratio is None or interval is None or math.isnan(result.ratio):
        figure = "the latency" if result.gate.metric == "latency" else "the energy or the latency"
        return replace(result, ratio=None, ci95=None, reason=f"{figure} of a side is unknown")
    if math.isnan(interval[1]):
        return replace(result, ci95=None, reason=ONE_RUN)
    if interval[1] <= limit:
        return replace(result, status="passes")
    if surely_above > limit:
        return replace(result, status="regressed")
    reason = "the interval reaches both sides of the limit"
    if interval[0] > limit:
        reason = "among so many statements and gates this may be chance"
    return replace(result, reason=reason, more_runs=more_runs)


def exit_code(results: Sequence[GateResult]) -> int:
    """1 if any has regressed; else 3 if any is not separable; else 0."""
    states = {result.status for result in results}
    return 1 if "regressed" in states else 3 if "not separable" in states else 0
