# SPDX-License-Identifier: Apache-2.0
"""`--engine dask` with workers that are processes, and die: answers are those of one process."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fleet_dataset as made
import long_trace
from fleet_asked import BEGIN_S, assert_same
from qjoule.engine.attribute import Asked, attribute
from qjoule.errors import QjouleError
from qjoule.fleet import attribution
from qjoule.fleet.asked import Engine, InProcess, Question, Reader
from qjoule.fleet.attribution import Order, attributed
from qjoule.fleet.cluster import DaskWorkers, dask_workers
from qjoule.fleet.dask_engine import DaskEngine
from qjoule.fleet.files import dataset
from qjoule.fleet.questions import parse_by
from qjoule.fleet.relations import Limits
from qjoule.fleet.times import Range
from qjoule.fleet.top import Top, top
from qjoule.reporters.json_report import to_json
from qjoule.trace.reader import Trace

pytestmark = pytest.mark.beside
pytest.importorskip("distributed", reason="the extra `fleet` is not installed")


def die_once(died: str, function: Any, *given: object) -> Any:
    """Kills its worker the first time that it runs, once the task is done."""
    result = function(*given)
    try:
        os.close(os.open(died, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return result
    os.kill(os.getpid(), signal.SIGKILL)
    return None


class Dying:
    """Workers of which one dies in each task whose number `every` divides, once."""

    def __init__(self, workers: DaskWorkers, directory: Path, every: int) -> None:
        self._workers, self._directory, self._every = workers, directory, every
        self.tasks = 0

    @property
    def count(self) -> int:
        return self._workers.count

    def submit(self, function: Any, *given: object, soon: bool = False) -> Any:
        self.tasks += 1
        if self.tasks % self._every:
            return self._workers.submit(function, *given, soon=soon)
        died = str(self._directory / str(self.tasks))
        return self._workers.submit(die_once, died, function, *given, soon=soon)


@pytest.fixture(scope="module")
def workers() -> Iterator[DaskWorkers]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # the workers find this module
        with dask_workers(None, 2) as started:
            yield started


def test_attribution_is_the_same_whoever_dies(workers: DaskWorkers, tmp_path: Path) -> None:
    """The algebra library of each process has one thread, so that bytes are equal, not only nJ."""
    paths = [long_trace.write(tmp_path / f"t{seed}", seed, 65) for seed in (1, 2)]
    tasks = [workers.submit(attribution.whole, str(path), Asked()) for path in paths]
    expected = [task.result() for task in tasks]
    dying = Dying(workers, tmp_path, 9)
    orders = [Order(Trace(path), Asked(), lambda cells: cells) for path in paths]
    answers = attributed(orders, dying)
    died = [path for path in tmp_path.iterdir() if path.name.isdecimal()]
    assert len(died) == dying.tasks // 9 >= 2
    assert [to_json(one) for one, _ in answers] == [to_json(one) for one, _ in expected]
    for path, (answer, _) in zip(paths, answers, strict=True):
        here = attribute(Trace(path))
        assert [row.energy_nj for row in here.rows] == [row.energy_nj for row in answer.rows]


def test_a_trace_that_workers_cannot_read_is_one_line(workers: DaskWorkers, tmp_path: Path) -> None:
    path = long_trace.write(tmp_path / "t", 0, 1)
    trace = Trace(path)
    path.rename(tmp_path / "gone")
    with pytest.raises(QjouleError, match="is not a trace"):
        attributed([Order(trace, Asked())], workers)


@pytest.mark.parametrize("by", ["shape", "tag:tenant"])
def test_questions_have_the_same_answer(
    tmp_path: Path, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qjoule.fleet.dask_engine._LEAST_PARTS", 2)
    fleet = made.Fleet(made.hosts(3), shapes=3, minutes=(0, 7, 31), tags=("alpha", "beta"))
    root = made.write(tmp_path, fleet)

    def ask(engine: Engine) -> Top:
        reader = Reader(dataset(str(root)), Limits(200, 1), engine)
        return top(reader, Range(BEGIN_S, BEGIN_S + 3 * 3600), Question(parse_by(by)))

    assert_same(ask(InProcess()), ask(DaskEngine(threads=2)))
