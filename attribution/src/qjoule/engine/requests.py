# SPDX-License-Identifier: Apache-2.0
"""The calls of a recording in order of time: those that ended until then, and those that own no CPU
time in the windows in which they came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from qjoule.engine.calls import Calls
from qjoule.engine.query_groups import QueryGroups
from qjoule.model.arrays import Requests, WindowBatch
from qjoule.model.energy import I64
from qjoule.model.labels import GroupLabel


class CallsByEnd:
    """The calls of `groups` in order of time; only overlapping parts are held."""

    def __init__(self, groups: QueryGroups) -> None:
        self._groups = groups
        spans = [(*span, part) for part, span in enumerate(groups.ends_ns) if span]
        self._ahead = sorted(spans, reverse=True)
        self._held: list[Calls] = []

    def until(self, end_ns: int) -> list[Calls]:
        """The calls that ended at `end_ns` or before, and were not returned yet."""
        while self._ahead and self._ahead[-1][0] <= end_ns:
            self._held.append(self._groups.calls(self._ahead.pop()[2]))
        taken = [calls.take(calls.end_ns <= end_ns) for calls in self._held]
        left = [calls.take(calls.end_ns > end_ns) for calls in self._held]
        self._held = [calls for calls in left if len(calls.end_ns)]
        return taken


class RecordedRequests:
    """Adds requests to consecutive batches. Reads the trace's queries a second time, in order."""

    def __init__(self, queries: QueryGroups, labels: Sequence[GroupLabel]) -> None:
        self._counted = np.array([label.is_counted for label in labels], bool)
        self._ended = CallsByEnd(queries) if self._counted.any() else None

    @property
    def any(self) -> bool:
        """Whether there is a server whose requests own no CPU time."""
        return self._ended is not None

    def added(self, batch: WindowBatch) -> WindowBatch:
        """The batch with the requests that came in its windows, if the trace has any."""
        bounds_ns = batch.energy.boundaries_ns
        if self._ended is None or len(bounds_ns) < 2:
            return batch
        calls = self._ended.until(int(bounds_ns[-1]) - 1)
        group = np.concatenate([np.zeros(0, np.int64), *(some.group for some in calls)])
        end_ns = np.concatenate([np.zeros(0, np.int64), *(some.end_ns for some in calls)])
        n = np.concatenate([np.zeros(0, np.int64), *(some.executions for some in calls)])
        window = np.searchsorted(bounds_ns, end_ns, "right") - 1
        rows = (window >= 0) & self._counted[group]
        return replace(batch, requests=summed(window[rows], group[rows], n[rows]))


def summed(window: I64, group: I64, executions: I64) -> Requests:
    """Sums requests of any order to one row per window and group."""
    groups = int(group.max(initial=0)) + 1
    pair, place = np.unique(window * groups + group, return_inverse=True)
    sums = np.zeros(len(pair), np.int64)
    np.add.at(sums, place.reshape(-1), executions)
    return Requests(pair // groups, pair % groups, sums)
