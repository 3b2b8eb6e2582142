# SPDX-License-Identifier: Apache-2.0
"""Attribution by many workers is that of one process, byte for byte: however the trace is divided,
whoever does the parts, in whichever order, and whoever dies."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner

import attribute_trace
import long_trace
from qjoule.commands import attribute as command
from qjoule.engine.attribute import Asked, attribute
from qjoule.errors import QjouleError
from qjoule.fleet import attribution, cluster
from qjoule.fleet.attribution import Order, attributed
from qjoule.reporters.json_report import to_json
from qjoule.trace.meta import EnergyInfo
from qjoule.trace.reader import Trace


class Later:
    """A task of `Fickle`, done when it is needed, or when the dice say so."""

    def __init__(self, workers: Fickle, function: Callable[..., Any], given: Sequence[Any]) -> None:
        self._workers, self._function, self._given = workers, function, given
        self._done: bytes | None = None

    def result(self) -> Any:
        if self._done is not None and self._workers.dice.random() < self._workers.forgets:
            self._done = None  # its worker died after it was done
        if self._done is None:
            given = [one.result() if isinstance(one, Later) else one for one in self._given]
            copied = pickle.loads(cloudpickle.dumps(given))
            self._done = cloudpickle.dumps(self._function(*copied))
        return pickle.loads(self._done)


class Fickle:
    """Workers that do tasks in any order, each on copies of what it is given.

    `forgets`: how likely a worker has died, and its result is lost, when that is needed.
    """

    count = 2

    def __init__(self, dice: Random, forgets: float = 0.0) -> None:
        self.dice, self.forgets = dice, forgets
        self.tasks: list[Later] = []

    def submit(self, function: Callable[..., Any], *given: object, soon: bool = False) -> Later:  # noqa: ARG002
        mine = Later(self, function, given)
        self.tasks.append(mine)
        near = self.tasks[-4:]
        for task in self.dice.sample(near, self.dice.randint(0, min(2, len(near)))):
            task.result()
        return mine


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, str]]:
    """Traces with the JSON of one process."""
    directory = tmp_path_factory.mktemp("traces")
    measured = EnergyInfo("powercap", "measured", "a test")
    paths = [
        long_trace.write(directory / "lossy", 1, 65),
        long_trace.write(directory / "measured", 2, 65, energy=measured),
        attribute_trace.write(directory / "small"),
    ]
    return [(path, to_json(attribute(Trace(path)))) for path in paths]


def by_dice(dice: Random) -> attribution.Partition:
    def partition(cells: Sequence[int]) -> Sequence[int]:
        inner = [cell for cell in cells[1:-1] if dice.random() < 0.6]
        return (cells[0], *inner, cells[-1])

    return partition


def test_any_division_order_and_death_gives_the_same_bytes(traces: list[tuple[Path, str]]) -> None:
    orders = [Order(Trace(path), Asked(), by_dice(Random(2))) for path, _ in traces]
    answers = attributed(orders, Fickle(Random(2), forgets=0.1))
    assert [to_json(answer) for answer, _ in answers] == [expected for _, expected in traces]


def test_cells_that_are_learned_from_are_the_same(traces: list[tuple[Path, str]]) -> None:
    told: list[Any] = []
    path, _ = traces[1]
    attribute(Trace(path), learned=told.extend)
    ((_, cells),) = attributed([Order(Trace(path), Asked(), by_dice(Random(4)))], Fickle(Random(4)))
    assert told
    assert [pickle.dumps(one) for one in cells] == [pickle.dumps(one) for one in told]


def test_without_dask_and_with_wrong_options_the_command_ends_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(attribute_trace.write(tmp_path / "t"))

    def error(*words: str) -> str:
        done = CliRunner().invoke(command.command, [path, *words])
        assert isinstance(done.exception, QjouleError)
        return str(done.exception)

    assert "--workers" in error("--workers", "2")
    assert "--scheduler" in error("--engine", "dask", "--workers", "2", "--scheduler", "x")
    monkeypatch.setattr(cluster, "_CONNECT_S", 0.2)
    unknown = "tcp://127.0.0.1:1"
    words = ("--engine", "dask", "--scheduler", unknown)
    assert error(*words) == f"no Dask scheduler answers at {unknown}"
    monkeypatch.setitem(sys.modules, "dask", None)
    assert "pip install 'qjoule[fleet]'" in error("--engine", "dask") == cluster.MISSING
