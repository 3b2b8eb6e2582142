# SPDX-License-Identifier: Apache-2.0
"""The server that a run needs: started by the study with its settings, or one that runs already.

The next run is chosen only from the plan, its seed and the runs already made, so an interrupted
study continues as it would have without the interruption.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Protocol

from qjoule.api import QjouleError
from qjoule.api.command import Run
from qjoule_studies.design import Levels, Slot, in_order, replications_of
from qjoule_studies.plan import SERVER, SETTING, Plan, Running
from qjoule_studies.targets import NOBODY, identity_of, running_target
from qjoule_studies.workload import Target, Value


def slots(
    plan: Plan, combinations: Sequence[Levels], runs: Sequence[Run], *, again: bool = False
) -> Iterator[Slot]:
    """The runs that are left, in order.

    Args:
        runs: those that were made. The caller adds each run that it makes before it asks for the
            next slot: whether a combination is run again depends on them.
        again: runs that failed are made again.
    """
    done = {
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
            if (replication, key(levels)) not in done:
                yield Slot(block, replication, levels)


def left(plan: Plan, combinations: Sequence[Levels], runs: Sequence[Run], *, again: bool) -> int:
    """How many runs are left by now; there will be more if an interval stays too wide."""
    remaining = slots(plan, combinations, runs, again=again)
    return sum(1 for _ in _this_far(remaining, plan.replications.least))


def key(levels: Mapping[str, Value]) -> str:
    """A combination's name. `1` and `true` are different levels."""
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


def _this_far(slots: Iterator[Slot], least: int) -> Iterator[Slot]:
    """The first `least` replications, or the rest of a block added for a narrower interval."""
    part: int | None = None
    for slot in slots:
        of = slot.block if slot.replication > least else 0
        if part not in (None, of):
            return
        part = of
        yield slot


#: Starts a server by its name with settings; it ends with the context. `qjoule_studies.servers`.
Starter = Callable[[str, Mapping[str, Value]], AbstractContextManager[Target]]


class Host(Protocol):
    """Has the right server ready for each run."""

    def ready(self, levels: Levels) -> tuple[Target, bool]:
        """The server of a combination, and whether it is new: started, or met first.

        Raises `QjouleError` if it does not start, or is not there.
        """

    @property
    def has_ended(self) -> bool:
        """Whether the server of the last run is known to be gone."""

    def close(self) -> None:
        """Ends what was started."""


class Started:
    """Runs one server at a time, anew where a run needs another one or other settings."""

    def __init__(self, plan: Plan, start: Starter) -> None:
        self._plan = plan
        self._start = start
        self._context: AbstractContextManager[Target] | None = None
        self._target: Target | None = None
        self._wanted = ""
        self._server_process = NOBODY

    def ready(self, levels: Levels) -> tuple[Target, bool]:
        name = str(levels.get(SERVER, self._plan.server))
        settings = dict(self._plan.settings.get(name, {}))
        settings |= {
            factor.removeprefix(SETTING): level
            for factor, level in levels.items()
            if factor.startswith(SETTING)
        }
        wanted = key({"": name, **settings})
        if self._target is not None and wanted == self._wanted and not self.has_ended:
            return self._target, False
        self._end_quietly()
        context = self._start(name, settings)
        self._target = context.__enter__()
        self._context, self._wanted = context, wanted
        self._server_process = identity_of(self._target.pid)
        return self._target, True

    @property
    def has_ended(self) -> bool:
        return self._server_process.ended

    def close(self) -> None:
        context, self._context, self._target = self._context, None, None
        if context is not None:
            context.__exit__(None, None, None)

    def _end_quietly(self) -> None:
        """Closes the server; errors are ignored if it has already died."""
        if self.has_ended:
            with suppress(QjouleError, OSError):
                self.close()
        self.close()


class AlreadyRunning:
    """A server of the user's. If it was started anew it is looked for again."""

    def __init__(self, wanted: Running, *, to_record: bool) -> None:
        self._wanted = wanted
        self._to_record = to_record
        self._target: Target | None = None
        self._server_process = NOBODY

    def ready(self, levels: Levels) -> tuple[Target, bool]:  # noqa: ARG002 (as Host)
        if self._target is not None and not self.has_ended:
            return self._target, False
        self._target = running_target(self._wanted, to_record=self._to_record)
        self._server_process = identity_of(self._target.pid)
        return self._target, True

    @property
    def has_ended(self) -> bool:
        return self._server_process.ended

    def close(self) -> None:
        return
