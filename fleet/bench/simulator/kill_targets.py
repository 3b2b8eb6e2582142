# SPDX-License-Identifier: Apache-2.0
"""What is killed at random moments: a shipper, Dask's workers, and its scheduler.

Each runs in a process that is forked from one with all libraries loaded, so that a thousand starts
take little time. That process has no other threads, so a fork finds no lock held.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

_PRELOADED = (
    *("duckdb", "fsspec.implementations.local", "pyarrow.parquet", "distributed"),
    *("qjoule_fleet.asked", "qjoule_fleet.dask_engine", "qjoule_fleet.ship.shipper"),
    "fleet.bench.simulator.kill_targets",
)
BEGAN = "began"
#: How long a process may take to begin, and to end after it was killed.
_START_S = 120.0


class Target:
    """A process that sends one object when it begins. `began`: that object."""

    def __init__(self, does: Callable[..., None], *arguments: Any) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(_PRELOADED))
        ours, its = context.Pipe(duplex=False)
        self._process: ForkServerProcess = context.Process(
            target=does, args=(its, *arguments), daemon=True
        )
        self._process.start()
        its.close()
        if not ours.poll(_START_S):
            self.kill()
            raise TimeoutError(f"{does.__name__} did not begin in {_START_S:g} s")
        self.began: Any = ours.recv()
        ours.close()

    def ended(self, timeout_s: float | None) -> bool:
        """Waits so long for its end."""
        self._process.join(timeout_s)
        return self._process.exitcode is not None

    def kill(self) -> bool:
        """Whether it was still running."""
        if self._process.exitcode is None and self._process.pid:
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.join(_START_S)
        return self._process.exitcode == -signal.SIGKILL

    @property
    def well(self) -> bool:
        """Whether it ended by itself without an error."""
        return self._process.exitcode == 0


def ship(began: Connection, store: Path, to: Path, renames: bool) -> None:
    """One pass of the shipper. `renames`: by a filesystem of fsspec, not the directory itself."""
    from fsspec.implementations.local import LocalFileSystem  # noqa: PLC0415 (in the child alone)

    from qjoule_fleet.ship.destination import Directory, Remote  # noqa: PLC0415
    from qjoule_fleet.ship.shipper import Shipper  # noqa: PLC0415

    where = Remote(LocalFileSystem(), str(to), str(to)) if renames else Directory(to)
    began.send(BEGAN)
    report = Shipper(store, where).ship()
    if not report.well:
        raise SystemExit(1)


def _quiet() -> None:
    """Dask tells of each connection that is lost, which is what is tried here."""
    logging.getLogger("distributed").setLevel(logging.CRITICAL + 1)


def scheduler(began: Connection, place: Path) -> None:
    """Sends its address."""
    from distributed import Scheduler  # noqa: PLC0415

    _quiet()

    async def run() -> None:
        async with Scheduler(
            host="127.0.0.1", port=0, dashboard=False, local_directory=str(place)
        ) as found:
            began.send(found.address)
            await found.finished()

    asyncio.run(run())


def worker(began: Connection, address: str, place: Path) -> None:
    from distributed import Worker  # noqa: PLC0415

    _quiet()
    place.mkdir(parents=True, exist_ok=True)
    tempfile.tempdir = str(place)  # what it has there when it is killed stays

    async def run() -> None:
        async with Worker(
            address, nthreads=1, local_directory=str(place), dashboard=False, death_timeout=20
        ) as found:
            began.send(found.address)
            await found.finished()

    asyncio.run(run())
