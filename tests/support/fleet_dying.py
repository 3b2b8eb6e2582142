# SPDX-License-Identifier: Apache-2.0
"""An engine whose workers die in every task once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from qjoule.fleet.asked import Parts
from qjoule.fleet.dask_engine import DaskEngine
from qjoule.fleet.relations import Limits

Task = Callable[[Parts], dict[str, pa.Table]]


@dataclass(frozen=True)
class Once:
    """A task whose process ends before its result is there, the first time."""

    task: Task
    marks: Path

    def __call__(self, parts: Parts) -> dict[str, pa.Table]:
        found = self.task(parts)
        paths = " ".join(one.path for one in parts.sums.parts)
        mark = self.marks / hashlib.sha256(paths.encode()).hexdigest()
        if not mark.exists():
            mark.touch()
            os._exit(1)
        return found


@dataclass(frozen=True)
class Dying:
    scheduler: str
    marks: Path

    def each(self, task: Task, parts: Parts) -> Iterator[dict[str, pa.Table]]:
        return DaskEngine(self.scheduler).each(Once(task, self.marks), parts)

    def limits(self, limits: Limits) -> Limits:
        return DaskEngine(self.scheduler).limits(limits)
