# SPDX-License-Identifier: Apache-2.0
"""Assigns a trace's requests that own no CPU time to the windows in which they came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from qjoule.engine.query_groups import CallsByEnd, QueryGroups
from qjoule.model.arrays import Requests, WindowBatch
from qjoule.model.energy import I64
from qjoule.model.labels import GroupLabel


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
