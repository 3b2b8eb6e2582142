# SPDX-License-Identifier: Apache-2.0
"""New group numbers, so that a live view can drop groups and still add up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from qjoule.model.arrays import Entries, Requests, WindowBatch
from qjoule.model.energy import I64, Bool

_Number = TypeVar("_Number", np.int64, np.float64)


@dataclass(frozen=True)
class Renumbering:
    """`group`: (groups before,) the new number of each; several may share one.

    Groups that are not merged keep their order.
    """

    group: I64
    groups: int  #: the number of groups after it

    @cached_property
    def shared(self) -> Bool:
        """(groups,) whether several old groups have become this one."""
        return np.bincount(self.group, minlength=self.groups) > 1

    @cached_property
    def first(self) -> I64:
        """(groups,) the first number before of each."""
        first = np.zeros(self.groups, np.int64)
        first[self.group[::-1]] = np.arange(len(self.group) - 1, -1, -1)
        return first

    def alone(self, group: I64) -> Bool:
        """Whether each of some groups, by its old number, is still a group of its own."""
        return np.asarray(~self.shared[self.group[group]])

    def sums(self, values: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
        """Sums per group, (m, ...) for the first m groups before, as (groups, ...) sums."""
        out = np.zeros((self.groups, *values.shape[1:]), values.dtype)
        np.add.at(out, self.group[: len(values)], values)
        return out

    def after(self, moves: Iterable[tuple[int, int]]) -> Renumbering:
        """The same renumbering, applied after these groups were moved to others, in this order."""
        at = np.arange(len(self.group))
        for source, target in moves:
            at[at == source] = target
        return Renumbering(self.group[at], self.groups)

    def batch(self, batch: WindowBatch) -> WindowBatch:
        """Windows with the new numbers; within one window, merged groups are added up."""
        requests = batch.requests
        if requests is not None:
            requests = self._requests(requests)
        return replace(batch, entries=self._entries(batch.entries), requests=requests)

    def _requests(self, requests: Requests) -> Requests:
        key = requests.window * self.groups + self.group[requests.group]
        present, place = np.unique(key, return_inverse=True)
        executions = np.zeros(len(present), np.int64)
        np.add.at(executions, place.reshape(-1), requests.executions)
        return Requests(present // self.groups, present % self.groups, executions)

    def _entries(self, entries: Entries) -> Entries:
        pair = entries.window * (int(entries.package.max(initial=0)) + 1) + entries.package
        key = pair * self.groups + self.group[entries.group]
        present, first, place = np.unique(key, return_index=True, return_inverse=True)
        place = place.reshape(-1)

        def summed_up(values: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
            out = np.zeros((len(present), *values.shape[1:]), values.dtype)
            np.add.at(out, place, values)
            return out

        return Entries(
            entries.window[first],
            entries.package[first],
            present % self.groups,
            *(summed_up(getattr(entries, field.name)) for field in fields(Entries)[3:]),
        )
