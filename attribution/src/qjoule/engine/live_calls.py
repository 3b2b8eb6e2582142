# SPDX-License-Identifier: Apache-2.0
"""The calls of a live stream by group, from the kernel's own sums."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from qjoule.contract import LATENCY_BUCKETS, WAITS, OwnerKind
from qjoule.engine.live_owners import Records
from qjoule.model import latency
from qjoule.model.arrays import (
    Renumbering,
)
from qjoule.model.energy import I64


@dataclass
class LiveCalls:
    """Sums call statistics of aggregate records."""

    calls: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    latency_ns: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    histogram: I64 = field(default_factory=lambda: np.zeros((0, LATENCY_BUCKETS), np.int64))
    outcomes: I64 = field(default_factory=lambda: np.zeros((0, len(latency.OUTCOMES)), np.int64))
    waits_ns: I64 = field(default_factory=lambda: np.zeros((0, 1 + WAITS), np.int64))
    helpers_ns: I64 = field(default_factory=lambda: np.zeros((0, 1 + WAITS), np.int64))

    def add(self, records: Records, group: I64) -> None:
        """Adds the calls of query records; `group` as numbered by `LiveGroups`."""
        queries = records["owner_kind"] == OwnerKind.QUERY
        self._grow(int(group.max(initial=-1)) + 1)
        who = group[queries]
        np.add.at(self.calls, who, records["calls"][queries].astype(np.int64))
        np.add.at(self.latency_ns, who, records["latency_ns"][queries].astype(np.float64))
        histogram = records["latency"][queries]
        row, bucket = np.nonzero(histogram)  # few buckets of a record have calls
        np.add.at(self.histogram, (who[row], bucket), histogram[row, bucket].astype(np.int64))
        columns = [records[name][queries].astype(np.int64) for name in latency.OUTCOMES]
        np.add.at(self.outcomes, who, np.stack(columns, axis=1))
        for sums, whole, parts in (
            (self.waits_ns, "waited_ns", "wait_ns"),
            (self.helpers_ns, "helpers_ns", "helpers_wait_ns"),
        ):
            waits_ns = np.column_stack([records[whole][queries], records[parts][queries]])
            np.add.at(sums, who, waits_ns.astype(np.int64))

    def move(self, source: int, target: int) -> None:
        """Moves the calls of group `source` to group `target`."""
        self._grow(max(source, target) + 1)
        for sums in (
            *(self.calls, self.latency_ns, self.histogram, self.outcomes),
            *(self.waits_ns, self.helpers_ns),
        ):
            sums[target] += sums[source]
            sums[source] = 0

    def renumber(self, renumbering: Renumbering) -> None:
        """Renumbers the groups; sums of merged groups are added."""
        self._grow(len(renumbering.group))
        self.calls = renumbering.sums(self.calls)
        self.latency_ns = renumbering.sums(self.latency_ns)
        self.histogram = renumbering.sums(self.histogram)
        self.outcomes = renumbering.sums(self.outcomes)
        self.waits_ns = renumbering.sums(self.waits_ns)
        self.helpers_ns = renumbering.sums(self.helpers_ns)

    def stats(self, groups: int) -> latency.CallStats:
        self._grow(groups)
        stats = latency.from_histograms(self.calls, self.latency_ns, self.histogram)
        return replace(
            stats,
            outcomes=self.outcomes.copy(),
            waits_ns=self.waits_ns.copy(),
            helpers_ns=self.helpers_ns.copy(),
        )

    def _grow(self, groups: int) -> None:
        missing = groups - len(self.calls)
        if missing > 0:
            self.calls = np.append(self.calls, np.zeros(missing, np.int64))
            self.latency_ns = np.append(self.latency_ns, np.zeros(missing))
            more = np.zeros((missing, len(latency.OUTCOMES)), np.int64)
            self.outcomes = np.vstack([self.outcomes, more])
            self.waits_ns = np.pad(self.waits_ns, ((0, missing), (0, 0)))
            self.helpers_ns = np.pad(self.helpers_ns, ((0, missing), (0, 0)))
            self.histogram = np.vstack(
                [self.histogram, np.zeros((missing, LATENCY_BUCKETS), np.int64)]
            )
