# SPDX-License-Identifier: Apache-2.0
"""`qjoule attribute --engine dask` with workers that are processes, and die."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

import long_trace
from qjoule.commands import attribute as command
from qjoule.engine.attribute import Asked, attribute
from qjoule.errors import QjouleError, UsageError
from qjoule.fleet import attribution, cluster
from qjoule.fleet.attribution import Order, attributed
from qjoule.fleet.cluster import DaskWorkers, _Task, dask_workers
from qjoule.reporters.json_report import to_json
from qjoule.trace.reader import Trace


def die_once(died: str, function: Any, *given: object) -> Any:
    """Kills its worker the first time that it runs, once the task is done."""
    found = function(*given)
    try:
        os.close(os.open(died, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return found
    os.kill(os.getpid(), signal.SIGKILL)
    return None


class Dying:
    """Each task whose number is in `deaths` kills the worker that does it, once."""

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
    pytest.importorskip("distributed", reason="needs the extra 'fleet'")
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)  # the workers find this module
    try:
        with dask_workers(None, 2) as found:
            yield found
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def each_cell(cells: Any) -> Any:
    return cells


def test_workers_that_die_change_nothing(workers: DaskWorkers, tmp_path: Path) -> None:
    """The algebra library of each process has one thread, so that bytes are equal, not only nJ."""
    paths = [long_trace.write(tmp_path / f"t{seed}", seed, 65) for seed in (1, 2)]
    tasks = [workers.submit(attribution.whole, str(path), Asked()) for path in paths]
    expected = [task.result() for task in tasks]
    dying = Dying(workers, tmp_path, 9)
    found = attributed([Order(Trace(path), Asked(), each_cell) for path in paths], dying)
    died = [path for path in tmp_path.iterdir() if path.name.isdecimal()]
    assert len(died) == dying.tasks // 9 >= 2
    assert [to_json(one) for one, _ in found] == [to_json(one) for one, _ in expected]
    here = [attribute(Trace(path)) for path in paths]
    for one, (other, _) in zip(here, found, strict=True):
        assert [row.energy_nj for row in one.rows] == [row.energy_nj for row in other.rows]


def test_a_task_that_always_kills_its_worker_is_one_line() -> None:
    distributed = pytest.importorskip("distributed", reason="needs the extra 'fleet'")
    last = SimpleNamespace(address="tls://10.0.0.7:4000")

    class Killed:
        def result(self) -> None:
            raise distributed.KilledWorker("task", last, cluster.DEATHS)

    with pytest.raises(QjouleError, match=r"6 workers died in one task, the last was tls://10"):
        _Task(Killed()).result()


def test_a_trace_that_workers_cannot_read_is_one_line(workers: DaskWorkers, tmp_path: Path) -> None:
    path = long_trace.write(tmp_path / "t", 0, 1)
    trace = Trace(path)
    path.rename(tmp_path / "gone")
    with pytest.raises(QjouleError, match="is not a trace"):
        attributed([Order(trace, Asked())], workers)


def test_without_dask_the_command_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = long_trace.write(tmp_path / "t", 0, 1)
    monkeypatch.setitem(sys.modules, "dask", None)
    done = CliRunner().invoke(command.command, [str(path), "--engine", "dask"])
    assert isinstance(done.exception, QjouleError)
    assert str(done.exception) == cluster.MISSING
    assert "pip install 'qjoule[fleet]'" in cluster.MISSING


def test_options_of_other_engines_are_refused(tmp_path: Path) -> None:
    path = str(long_trace.write(tmp_path / "t", 0, 1))
    for arguments in (
        ["--workers", "2"],
        ["--engine", "dask", "--workers", "2", "--scheduler", "x"],
    ):
        done = CliRunner().invoke(command.command, [path, *arguments])
        assert isinstance(done.exception, UsageError)


def test_no_scheduler_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_CONNECT_S", 0.2)
    path = str(long_trace.write(tmp_path / "t", 0, 1))
    arguments = [path, "--engine", "dask", "--scheduler", "tcp://127.0.0.1:1"]
    done = CliRunner().invoke(command.command, arguments)
    assert isinstance(done.exception, QjouleError)
    assert str(done.exception) == "no Dask scheduler answers at tcp://127.0.0.1:1"
