# SPDX-License-Identifier: Apache-2.0
"""Kills Dask's workers and its scheduler at random moments of a query, and compares its answers.

A killed worker is replaced. A query may fail, if its scheduler dies or its workers die too often;
then it says so, and is asked again. An answer that comes must be the one of a single process: every
integer the same, every interval's end up to the rounding of sums.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NoAnswer
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from fleet.bench.simulator import parts
from fleet.bench.simulator.population import DAY_MINUTES, Plan, draw
from fleet.bench.simulator.ship_kills import Target, scheduler, worker

from qjoule.errors import QjouleError
from qjoule_fleet.catalog import Catalog
from qjoule_fleet.dask_engine import DaskEngine
from qjoule_fleet.files import dataset
from qjoule_fleet.questions import CLASS, parse_by
from qjoule_fleet.reader import InProcess, Parts, Question, Reader, select
from qjoule_fleet.relations import Limits
from qjoule_fleet.times import Range

LIMITS = Limits(memory_mb=200, threads=1)
#: A query without an answer after this hangs.
HANGS_S = 120.0


@dataclass
class Killed:
    """`refused`: queries that failed and said why. The rest counts faults."""

    workers: int = 0
    schedulers: int = 0
    answers: int = 0
    refused: int = 0
    different: int = 0
    hung: int = 0
    crashed: int = 0  #: queries that ended with an error that is not for users
    last_error: str = ""

    @property
    def kills(self) -> int:
        return self.workers + self.schedulers

    @property
    def well(self) -> bool:
        return not (self.different or self.hung or self.crashed)


def kill(
    place: Path,
    kills: int,
    plan: Plan,
    say: Callable[[str], None] = lambda _: None,
    *,
    every: int = 10,
) -> Killed:
    """Kills until so many processes were killed while a query ran: one of two workers, or, `every`
    so many times, the scheduler."""
    root, killed = place / "dataset", Killed()
    parts.write(root, draw(plan), parts.Wanted(minutes=False, latency=False))
    files, by = dataset(str(root)), parse_by("shape")
    time_range = Range(plan.begin_s, plan.begin_s + 60 * DAY_MINUTES * plan.days)
    chosen = select(Catalog(files), time_range, by)

    def ask(address: str) -> pa.Table:
        engine = DaskEngine(address) if address else InProcess()
        return _answer(
            Reader(files, LIMITS, engine), chosen, Question(by, limit=None, latency=False)
        )

    expected = ask("")
    random = np.random.default_rng(plan.seed)
    with _Cluster(place / "workers") as cluster:
        for _ in range(2):  # the first one also loads libraries
            begin_s = time.perf_counter()
            _compare(ask(cluster.address), expected, killed)
            whole_s = time.perf_counter() - begin_s
        while killed.kills < kills:
            say(f"{killed.kills} of {kills} workers and schedulers were killed")
            _query(cluster, ask, expected, _Times(random, whole_s, every), killed)
        _compare(ask(cluster.address), expected, killed)
    return killed


@dataclass(frozen=True)
class _Times:
    random: np.random.Generator
    whole_s: float  #: how long a query takes without kills
    every: int  #: kills, of which one hits the scheduler


def _query(
    cluster: _Cluster,
    ask: Callable[[str], pa.Table],
    expected: pa.Table,
    times: _Times,
    killed: Killed,
) -> None:
    """One query, and kills until it ends."""
    over = threading.Event()
    killer = threading.Thread(target=_kill_until, args=(over, cluster, times, killed))
    pool = ThreadPoolExecutor(1)
    answer = pool.submit(ask, cluster.address)
    killer.start()
    try:
        _compare(answer.result(HANGS_S), expected, killed)
    except QjouleError as error:
        killed.refused += 1
        killed.last_error = str(error)
    except NoAnswer:
        killed.hung += 1
    except Exception as error:  # whatever Dask raises
        killed.crashed += 1
        killed.last_error = f"{type(error).__name__}: {error}"[:300]
    finally:
        over.set()
        killer.join()
        pool.shutdown(wait=False, cancel_futures=True)
    cluster.mend()


def _kill_until(over: threading.Event, cluster: _Cluster, times: _Times, killed: Killed) -> None:
    while not over.wait(float(times.random.uniform(0, times.whole_s))):
        if (killed.kills + 1) % times.every == 0:
            killed.schedulers += cluster.kill_scheduler()
            return
        killed.workers += cluster.kill_worker(int(times.random.integers(2)))


def _answer(reader: Reader, chosen: Parts, question: Question) -> pa.Table:
    answer = reader.answer(chosen, question)
    return answer.groups.sort_by(
        [(column, "ascending") for column in (*question.by.columns, *CLASS)]
    )


def _compare(answer: pa.Table, expected: pa.Table, killed: Killed) -> None:
    killed.answers += 1
    same = answer.schema.names == expected.schema.names and len(answer) == len(expected)
    for name in expected.schema.names if same else ():
        ours, its = answer[name].combine_chunks(), expected[name].combine_chunks()
        if pa.types.is_floating(its.type):
            # The interval's ends are whole nJ, of sums of floating-point numbers in any order.
            same &= bool(np.allclose(ours.to_numpy(), its.to_numpy(), rtol=1e-9, atol=2.0))
        else:
            same &= ours.equals(its)
    killed.different += not same


class _Cluster:
    """A scheduler and two workers, which may be killed from another thread."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._place.mkdir()
        self._started = 0
        self._start()

    def __enter__(self) -> _Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        for process in (self._scheduler, *self._workers):
            process.kill()

    @property
    def address(self) -> str:
        return str(self._scheduler.began)

    def kill_worker(self, number: int) -> bool:
        """Kills and replaces it."""
        killed = self._workers[number].kill()
        self._workers[number] = self._worker()
        return killed

    def kill_scheduler(self) -> bool:
        return self._scheduler.kill()

    def mend(self) -> None:
        """Starts again if the scheduler is gone."""
        if self._scheduler.ended(0):
            for process in self._workers:
                process.kill()
            self._start()

    def _start(self) -> None:
        self._scheduler = Target(scheduler, self._place)
        self._workers = [self._worker(), self._worker()]

    def _worker(self) -> Target:
        self._started += 1
        return Target(worker, self.address, self._place / str(self._started))
