# SPDX-License-Identifier: Apache-2.0
"""Interface to watch an attribution, such as for a report that plots power over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from qjoule.engine.query_groups import QueryGroups
from qjoule.model.arrays import Machine, Segments, WindowBatch
from qjoule.model.energy import WindowEnergy
from qjoule.model.labels import GroupLabel
from qjoule.model.ledger import Ledger
from qjoule.model.split import Split


class Observer(Protocol):
    """Called by `qjoule.engine.attribute` in this order; must not change its arguments."""

    def started(
        self,
        energy: WindowEnergy,
        machine: Machine,
        labels: Sequence[GroupLabel],
        queries: QueryGroups,
    ) -> None:
        """Called with every window of the trace, and every group, by number."""

    def read(self, table: pa.Table, segments: Segments) -> None:
        """Called with segments and their groups; `table` has their rows, with the column
        `query`."""

    def split(self, batch: WindowBatch, ledger: Ledger, splits: Sequence[Split]) -> None:
        """Called with closed windows, and the split of each of `ledger.series`."""

    def finished(self, ledger: Ledger) -> None:
        """Called with all sums, including what is learned only from the whole trace."""


class _Nobody:
    def started(
        self,
        energy: WindowEnergy,
        machine: Machine,
        labels: Sequence[GroupLabel],
        queries: QueryGroups,
    ) -> None:
        pass

    def read(self, table: pa.Table, segments: Segments) -> None:
        pass

    def split(self, batch: WindowBatch, ledger: Ledger, splits: Sequence[Split]) -> None:
        pass

    def finished(self, ledger: Ledger) -> None:
        pass


NOBODY: Observer = _Nobody()
