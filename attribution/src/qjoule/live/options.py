# SPDX-License-Identifier: Apache-2.0
"""Options of a live view, and a bound on the tag values that it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from qjoule.engine.keys import EVERYTHING, Selection
from qjoule.engine.live_groups import GROUPS
from qjoule.engine.memory_adapter import OnLearned, discard_evidence
from qjoule.live.recent_stacks import StackOptions
from qjoule.machine.throttling import RecentCounts
from qjoule.model.coefficients import IdlePolicy
from qjoule.model.coefficients_used import UNCALIBRATED, Calibrated
from qjoule.model.result import Attribution
from qjoule.model.same_total import with_total_error
from qjoule.model.tag_values import bound_tags
from qjoule.snapshots import Controls, Snapshot, SnapshotSource
from qjoule.trace.meta import Meta

#: Returns the calibration, once energy source and domains are known.
Choose = Callable[[Meta], Calibrated]


def uncalibrated(_meta: Meta) -> Calibrated:
    return UNCALIBRATED


@dataclass(frozen=True)
class LiveOptions:
    """Options of a live view.

    Attributes:
        samples: the stream has queries that were drawn at random, which snapshots then have.
        where: selects queries.
        groups: the groupings from the beginning; the first is by statement. Beside the usual ones,
            tags that appear are offered too.
        on_learned: called now and then, and at the end, with what was learned of the machine.
        stacks: the stream has sampled stacks, which snapshots then have.
        refresh_s: between two snapshots' learning, if no block ends (at first less: see
            `AccountSettings.refresh_ns`); 0: each snapshot learns.
        throttling: how often heat throttles this machine's CPUs.
    """

    idle: IdlePolicy = "separate"
    choose: Choose = uncalibrated
    samples: bool = False
    where: Selection = EVERYTHING
    groups: tuple[str, ...] = GROUPS
    on_learned: OnLearned = discard_evidence
    refresh_s: float = 0.0
    stacks: StackOptions | None = None
    throttling: RecentCounts | None = None


class LimitedValues:
    """A source's snapshots, with at most `most` values of each tag that rows are grouped by.

    Values with the most energy since the last reset are named, also in the interval, so that a
    row's name is the same in successive snapshots. `absolute`: rows' intervals contain the error of
    the total.
    """

    def __init__(self, source: SnapshotSource, most: int, *, absolute: bool = False) -> None:
        self.name = source.name
        self._with_errors = with_total_error if absolute else _as_it_is
        self._source = source
        self._most = most

    @property
    def groups(self) -> tuple[str, ...]:
        return self._source.groups

    def snapshots(self, controls: Controls) -> Iterator[Snapshot]:
        for snapshot in self._source.snapshots(controls):
            total = bound_tags(snapshot.total, self._most)
            interval = bound_tags(snapshot.interval, self._most, snapshot.total)
            yield replace(
                snapshot, interval=self._with_errors(interval), total=self._with_errors(total)
            )

    def close(self) -> None:
        self._source.close()


def _as_it_is(result: Attribution) -> Attribution:
    return result
