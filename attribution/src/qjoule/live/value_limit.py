# SPDX-License-Identifier: Apache-2.0
"""Limits the number of a tag's values in snapshots, because applications choose the values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from qjoule.model.fold import bound_tags
from qjoule.model.result import Attribution
from qjoule.model.same_total import with_total_error
from qjoule.snapshots import Controls, Snapshot, SnapshotSource


class LimitedValues:
    """A source's snapshots, with at most `most` values of each tag that rows are grouped by.

    Values with the most energy since the last reset are named, also in the interval, so that a
    row's name is the same in successive snapshots. `absolute`: rows' intervals contain the error of
    the total.
    """

    def __init__(self, source: SnapshotSource, most: int, *, absolute: bool = False) -> None:
        self.name = source.name
        self._shown = with_total_error if absolute else _as_it_is
        self._source = source
        self._most = most

    @property
    def groups(self) -> tuple[str, ...]:
        return self._source.groups

    def snapshots(self, controls: Controls) -> Iterator[Snapshot]:
        for one in self._source.snapshots(controls):
            total = bound_tags(one.total, self._most)
            interval = bound_tags(one.interval, self._most, one.total)
            yield replace(one, interval=self._shown(interval), total=self._shown(total))

    def close(self) -> None:
        self._source.close()


def _as_it_is(found: Attribution) -> Attribution:
    return found
