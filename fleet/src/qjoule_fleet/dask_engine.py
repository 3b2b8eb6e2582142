# SPDX-License-Identifier: Apache-2.0
"""Divides a question's parts among Dask's workers, each of which uses its own DuckDB.

A worker that dies, or a repeated task, changes nothing: a division's cells depend on its parts
only, and each division's result is added once.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from qjoule.api import QjouleError
from qjoule_fleet.reader import Parts
from qjoule_fleet.relations import Limits

#: Divisions per thread of a worker: more divisions reduce waiting for slow ones.
_EACH = 2
#: Minimum number of parts in a division: starting DuckDB takes as long as reading some parts.
_LEAST_PARTS = 50
_CONNECT_S = 10.0
#: For failed tasks; Dask also repeats tasks of workers that died.
_RETRIES = 3


@dataclass(frozen=True)
class DaskEngine:
    """`scheduler`: its address, or '' for threads of this process.

    `divisions`: number of divisions; 0: chosen by the number of threads.
    """

    scheduler: str = ""
    threads: int = 0  #: threads in this process; 0: one per CPU
    divisions: int = 0

    def each(
        self, task: Callable[[Parts], dict[str, pa.Table]], parts: Parts
    ) -> Iterator[dict[str, pa.Table]]:
        return self._remote(task, parts) if self.scheduler else self._local(task, parts)

    def limits(self, limits: Limits) -> Limits:
        """Divides the memory among threads of this process. Each remote worker has the full
        limit."""
        if self.scheduler:
            return replace(limits, threads=1)
        return Limits(max(100, limits.memory_mb // self._threads), 1)

    @property
    def _threads(self) -> int:
        return self.threads or Limits().cpus

    def _divided(self, parts: Parts, threads: int) -> list[Parts]:
        count = len(parts.sums.parts) + (len(parts.tags.hourly) if parts.tags else 0)
        suits = max(1, min(_EACH * threads, count // _LEAST_PARTS))
        return parts.divided(self.divisions or suits)

    def _local(
        self, task: Callable[[Parts], dict[str, pa.Table]], parts: Parts
    ) -> Iterator[dict[str, pa.Table]]:
        dask = _dask()
        divisions = self._divided(parts, self._threads)
        delayed = [dask.delayed(task, pure=False)(division) for division in divisions]
        yield from dask.compute(*delayed, scheduler="threads", num_workers=self._threads)

    def _remote(
        self, task: Callable[[Parts], dict[str, pa.Table]], parts: Parts
    ) -> Iterator[dict[str, pa.Table]]:
        _dask()
        distributed: Any = importlib.import_module("distributed")

        try:
            client = distributed.Client(self.scheduler, timeout=_CONNECT_S, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise QjouleError(
                f"no Dask scheduler at {self.scheduler}: {str(error)[:200] or 'no answer'}"
            ) from None
        with client:
            threads = sum(client.nthreads().values())
            if not threads:
                raise QjouleError(f"the scheduler at {self.scheduler} has no workers")
            futures = client.map(task, self._divided(parts, threads), pure=False, retries=_RETRIES)
            # A lost scheduler cancels the futures, which is visible only when each result is read.
            try:
                for future in distributed.as_completed(futures, loop=client.loop):
                    yield future.result()
            except (CancelledError, distributed.comm.CommClosedError):
                raise QjouleError(
                    f"the scheduler at {self.scheduler} was lost: start it again, then ask again"
                ) from None
            except distributed.KilledWorker as error:
                raise QjouleError(f"workers died again and again: {str(error)[:200]}") from None


def _dask() -> Any:
    try:
        importlib.import_module("distributed")
        return importlib.import_module("dask")
    except ImportError:
        raise QjouleError("Dask is missing: pip install 'qjoule-fleet'") from None
