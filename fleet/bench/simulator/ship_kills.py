# SPDX-License-Identifier: Apache-2.0
"""Kills shippers at random moments, and counts what was lost, damaged, or there twice.

A host's store is shipped to an empty destination by one shipper after the other. Each is killed
after a time that is drawn from how long a whole pass takes; in some rounds a second one runs beside
it. After each kill every part that a reader would see must be the store's, byte by byte. At the end
of a round one shipper may finish, and the destination must have exactly the store's parts.

What is killed (a shipper, Dask's workers, its scheduler) runs in a process that is forked from one
with all libraries loaded, so that a thousand starts take little time. That process has no other
threads, so a fork finds no lock held.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import numpy as np
from fleet.bench.simulator import parts
from fleet.bench.simulator.population import Plan, draw

_PRELOADED = (
    *("duckdb", "fsspec.implementations.local", "pyarrow.parquet", "distributed"),
    *("qjoule_fleet.reader", "qjoule_fleet.dask_engine", "qjoule_fleet.ship.shipper"),
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
        """Waits at most `timeout_s` for the process to end; true if it did."""
        self._process.join(timeout_s)
        return self._process.exitcode is not None

    def kill(self) -> bool:
        """Kills the process; true if it was still running."""
        if self._process.exitcode is None and self._process.pid:
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.join(_START_S)
        return self._process.exitcode == -signal.SIGKILL

    @property
    def well(self) -> bool:
        """True if the process ended by itself without an error."""
        return self._process.exitcode == 0


def ship(began: Connection, store: Path, to: Path, renames: bool) -> None:
    """One pass of the shipper. `renames`: by a filesystem of fsspec, not the directory itself."""
    from fsspec.implementations.local import LocalFileSystem  # noqa: PLC0415 (in the child alone)

    from qjoule_fleet.ship.destination import Directory, Remote  # noqa: PLC0415
    from qjoule_fleet.ship.shipper import Shipper  # noqa: PLC0415

    where = Remote(LocalFileSystem(), str(to), str(to)) if renames else Directory(to)
    began.send(BEGAN)
    report = Shipper(store, where).ship()
    if not report.succeeded:
        raise SystemExit(1)


def _quiet() -> None:
    """Silences Dask's messages about lost connections, which the kills cause."""
    logging.getLogger("distributed").setLevel(logging.CRITICAL + 1)


def scheduler(began: Connection, place: Path) -> None:
    """Sends its address."""
    from distributed import Scheduler  # noqa: PLC0415

    _quiet()

    async def run() -> None:
        async with Scheduler(
            host="127.0.0.1", port=0, dashboard=False, local_directory=str(place)
        ) as running:
            began.send(running.address)
            await running.finished()

    asyncio.run(run())


def worker(began: Connection, address: str, place: Path) -> None:
    from distributed import Worker  # noqa: PLC0415

    _quiet()
    place.mkdir(parents=True, exist_ok=True)
    tempfile.tempdir = str(place)  # what it has there when it is killed stays

    async def run() -> None:
        async with Worker(
            address, nthreads=1, local_directory=str(place), dashboard=False, death_timeout=20
        ) as running:
            began.send(running.address)
            await running.finished()

    asyncio.run(run())


#: Kills of a round, at most; a round also ends when all is shipped.
PER_ROUND = 15
TABLES = ("rollups", "hours", "shapes", "servers")


@dataclass
class Killed:
    """`during`: of the kills, those before everything was there. The rest counts faults."""

    kills: int = 0
    during: int = 0
    rounds: int = 0
    damaged: int = 0  #: parts that a reader could have seen
    lost: int = 0
    twice: int = 0  #: parts, or lines of manifests, that are there beside the store's
    unfinished: int = 0  #: passes without kills that did not end well

    @property
    def well(self) -> bool:
        return not (self.damaged or self.lost or self.twice or self.unfinished)


def kill(
    place: Path, kills: int, plan: Plan, hours: int, say: Callable[[str], None] = lambda _: None
) -> Killed:
    """Kills until `kills` shippers were killed. `hours`: of the plan's host, which are shipped."""
    store = place / "store"
    parts.write(store, draw(plan), parts.Wanted(hours=hours))
    killing = _Killing(store, place / "to", np.random.default_rng(plan.seed))
    while killing.killed.kills < kills:
        say(f"{killing.killed.kills} of {kills} shippers were killed")
        killing.round(min(PER_ROUND, kills - killing.killed.kills))
    return killing.killed


class _Killing:
    """Of shippers from `store` to `to`; `found` is the sum of all rounds."""

    def __init__(self, store: Path, to: Path, random: np.random.Generator) -> None:
        self.killed = Killed()
        self._store, self._to, self._random = store, to, random
        self._whole_s = min(self._pass_s() for _ in range(3))

    def _pass_s(self) -> float:
        """Seconds of a pass that is not killed."""
        shipper = Target(ship, self._store, self._to, False)
        begin_s = time.perf_counter()
        shipper.ended(None)
        shutil.rmtree(self._to)
        return time.perf_counter() - begin_s

    def round(self, kills: int) -> None:
        """Ends with a pass that is not killed, and an empty destination."""
        total, draws = self.killed, self._random
        renames, beside = bool(draws.random() < 0.5), bool(draws.random() < 0.25)
        for _ in range(kills):
            missing = self._differences().missing
            if not missing:
                break
            shippers = [Target(ship, self._store, self._to, renames) for _ in range(1 + beside)]
            shippers[0].ended(float(draws.uniform(0, self._whole_s)))
            killed = sum([shipper.kill() for shipper in shippers])
            total.kills += killed
            total.during += killed if self._differences().missing else 0
            total.damaged += len(self._differences().others)
        last = Target(ship, self._store, self._to, renames)
        last.ended(None)
        total.unfinished += not last.well
        total.lost += len(self._differences().missing)
        total.twice += len(self._differences().others) + _repeated_lines(self._to)
        total.rounds += 1
        shutil.rmtree(self._to)

    def _differences(self) -> _Differences:
        ours, theirs = _visible(self._store), _visible(self._to)
        same = {path for path in ours.keys() & theirs.keys() if ours[path] == theirs[path]}
        return _Differences(frozenset(ours.keys() - same), frozenset(theirs.keys() - same))


@dataclass(frozen=True)
class _Differences:
    missing: frozenset[str]
    others: frozenset[str]  #: that are there but not in the store, or are not the same


def _visible(root: Path) -> dict[str, bytes]:
    """What a reader would read: names that begin with `.` are unfinished."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for table in TABLES
        for path in (root / table).rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }


def _repeated_lines(to: Path) -> int:
    """Lines of manifests that are there more than once, beside the parts' own."""
    lines = [line for manifest in (to / "manifests").rglob("*.jsonl") for line in manifest.open()]
    return len(lines) - len(_visible(to))
