# SPDX-License-Identifier: Apache-2.0
"""Chooses the next run, only from the plan, its seed and the runs already made.

So an interrupted study continues as it would have without the interruption.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence

from qjoule.api.command import Run
from qjoule_studies.design import Levels, Slot, in_order, replications_of
from qjoule_studies.plan import Plan
from qjoule_studies.workload import Value


def slots(
    plan: Plan, combinations: Sequence[Levels], runs: Sequence[Run], *, again: bool = False
) -> Iterator[Slot]:
    """The runs that are left, in order.

    Args:
        runs: those that were made. The caller adds each run that it makes before it asks for the
            next slot: whether a combination is run again depends on them.
        again: runs that failed are made again.
    """
    made = {
        (run["replication"], key(run["factors"]))
        for run in runs
        if run["status"] == "done" or not again
    }
    for block in itertools.count(1):
        todo = [
            (replication, levels)
            for replication in replications_of(block, plan.replications.least, plan.design.blocks)
            for levels in combinations
            if _wanted(plan, replication, levels, runs)
        ]
        if not todo:
            return
        for position in in_order(todo, block, plan.design):
            replication, levels = todo[position]
            if (replication, key(levels)) not in made:
                yield Slot(block, replication, levels)


def left(plan: Plan, combinations: Sequence[Levels], runs: Sequence[Run], *, again: bool) -> int:
    """How many runs are left, as far as is known now: more if an interval stays too wide."""
    found = slots(plan, combinations, runs, again=again)
    return sum(1 for _ in _this_far(found, plan.replications.least))


def key(levels: Mapping[str, Value]) -> str:
    """A combination's name. `1` and `true` are not one."""
    return json.dumps(levels, sort_keys=True)


def relative_half_width(values: Sequence[float]) -> float:
    """Half of the 95 % t-interval of the mean, over the mean; infinite of fewer than two values."""
    if len(values) < 2:
        return math.inf
    import numpy as np  # noqa: PLC0415 (a plan with a fixed number of replications needs none)
    from scipy import stats  # noqa: PLC0415

    mean, error = float(np.mean(values)), float(stats.sem(values))
    if error == 0:
        return 0.0
    return math.inf if mean == 0 else float(stats.t.ppf(0.975, len(values) - 1)) * error / abs(mean)


def _wanted(plan: Plan, replication: int, levels: Levels, runs: Sequence[Run]) -> bool:
    times = plan.replications
    if replication <= times.least:
        return True
    if times.until is None or replication > times.most:
        return False
    values = [
        value
        for run in runs
        if run["replication"] < replication
        and run["status"] == "done"
        and key(run["factors"]) == key(levels)
        and (value := run[times.response]) is not None
    ]
    return relative_half_width(values) > times.until


def _this_far(found: Iterator[Slot], least: int) -> Iterator[Slot]:
    """The first `least` replications, or the rest of the block that an interval has asked for."""
    part: int | None = None
    for slot in found:
        of = slot.block if slot.replication > least else 0
        if part not in (None, of):
            return
        part = of
        yield slot
