# SPDX-License-Identifier: Apache-2.0
"""What limits on power or frequency do to a server's joules per call, from the runs of a study.

Every replication has each level once, in random order, so levels are compared within replications:
what changes slowly, such as the load of the day, is then in both sides. Intervals are Student's, at
95 %; those of savings hold together (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from qjoule.api.attribution import attribute, for_trace
from qjoule.api.model import IdlePolicy
from qjoule.api.traces import Trace

_HEAD = ("LEVEL", "J/CALL ± 95 %", "P95 ms", "CALLS/s", "WATTS", "RUNS", "J/CALL AGAINST NOW")
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Measured:
    """One run. None: unknown."""

    replication: int
    level: float
    calls_per_s: float
    j_per_call: float | None
    p95_ns: float | None  #: of all statements together
    power_w: float | None
    grade: str


@dataclass(frozen=True)
class Estimate:
    """A mean over runs. `half_width`: half of its 95 % interval; None: one run shows none."""

    mean: float
    half_width: float | None

    @property
    def excludes_0(self) -> bool:
        return self.half_width is not None and abs(self.mean) > self.half_width


@dataclass(frozen=True)
class Level:
    """What was measured at a level. None: unknown. `saved`: J per call less than at the reference,
    over replications that have both; None at the reference. `verdict`: what that allows to say.
    """

    level: float
    runs: int
    j_per_call: Estimate | None
    p95_ns: Estimate | None
    calls_per_s: Estimate | None
    power_w: Estimate | None
    saved: Estimate | None
    verdict: str


def measured(
    trace: Trace, idle: IdlePolicy, replication: int, level: float, power_w: float | None
) -> Measured:
    """A run's figures, of its whole trace: the server's own clients never pause. Joules are those
    of its queries and its background work. Raises `QjouleError` if the trace cannot be read.
    """
    result = attribute(trace, ("server",), idle, calibrated=for_trace(trace))
    calls = sum(row.calls for row in result.rows)
    parts = (*result.rows, *(row for row in result.fixed if row.kind == "background"))
    energy_j = sum(row.energy_nj for row in parts) / 1e9
    return Measured(
        replication,
        level,
        calls / result.trace.duration_s if result.trace.duration_s else 0.0,
        energy_j / calls if calls and result.domains else None,
        result.rows[0].latency_ns_p95 if len(result.rows) == 1 else None,
        power_w,
        result.energy_source.grade,
    )


def levels_of(runs: Sequence[Measured], reference: float) -> list[Level]:
    """Each level, the greatest first. Estimated joules do not follow a limit, so `saved` is None
    unless all runs are measured.
    """
    levels = sorted({run.level for run in runs}, reverse=True)
    by_level = {level: [run for run in runs if run.level == level] for level in levels}
    shows = all(run.grade == "measured" for run in runs)
    before = {run.replication: run.j_per_call for run in by_level.get(reference, ())}
    measured_levels = []
    for level, level_runs in by_level.items():
        saved = None
        if shows and level != reference:
            pairs = [(before.get(run.replication), run.j_per_call) for run in level_runs]
            savings = [
                reference_j - j
                for reference_j, j in pairs
                if reference_j is not None and j is not None
            ]
            saved = _mean(savings, len(levels) - 1)
        measured_levels.append(
            Level(
                *(level, len(level_runs)),
                _mean([run.j_per_call for run in level_runs]),
                _mean([run.p95_ns for run in level_runs]),
                _mean([run.calls_per_s for run in level_runs]),
                _mean([run.power_w for run in level_runs]),
                saved,
                "(as it is now)" if level == reference else _verdict(saved),
            )
        )
    return measured_levels


def _mean(values: Sequence[float | None], comparisons: int = 1) -> Estimate | None:
    from scipy import stats  # noqa: PLC0415 (slow to import)

    present = [value for value in values if value is not None]
    if not present:
        return None
    mean = math.fsum(present) / len(present)
    if len(present) < 2:
        return Estimate(mean, None)
    quantile = float(stats.t.ppf(1 - 0.025 / comparisons, len(present) - 1))
    return Estimate(mean, quantile * float(stats.sem(present)))


def _verdict(saved: Estimate | None) -> str:
    if saved is None:
        return UNKNOWN
    if not saved.excludes_0:
        return f"no difference shown ({_estimate_text(saved)})"
    verb = "saves" if saved.mean > 0 else "costs"
    return f"{verb} {_estimate_text(Estimate(abs(saved.mean), saved.half_width))} J/call"


def table(levels: Sequence[Level], unit: str) -> str:
    """The levels as a text table; `unit` is that of the levels."""
    rows: list[tuple[str, ...]] = [_HEAD]
    for level in levels:
        figures = (level.j_per_call, 1.0), (level.p95_ns, 1e-6), (level.calls_per_s, 1.0)
        texts = [_estimate_text(of, factor) for of, factor in (*figures, (level.power_w, 1.0))]
        rows.append((f"{level.level:g} {unit}", *texts, str(level.runs), level.verdict))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "\n".join(lines) + "\n"


def _estimate_text(estimate: Estimate | None, factor: float = 1.0) -> str:
    if estimate is None:
        return UNKNOWN
    half = "?" if estimate.half_width is None else f"{estimate.half_width * factor:.2g}"
    return f"{estimate.mean * factor:.4g} ± {half}"
