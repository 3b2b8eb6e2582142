# SPDX-License-Identifier: Apache-2.0
"""Attribution by many workers is that of one process, byte for byte: however the trace is divided,
whoever does the parts, in whichever order, and whoever dies."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import attribute_trace
import long_trace
from qjoule.engine.attribute import Asked, attribute
from qjoule.engine.blocks_held import HeldBlocks
from qjoule.fleet import attribution
from qjoule.fleet.attribution import Order, attributed
from qjoule.model import cells_of_time
from qjoule.reporters.json_report import to_json
from qjoule.trace.meta import EnergyInfo
from qjoule.trace.reader import Trace


class Died(Exception):
    """A worker is gone, and what it held."""


class Later:
    """A task of `Fickle`, done when it is needed, or when the dice say so."""

    def __init__(self, workers: Fickle, function: Callable[..., Any], given: Sequence[Any]) -> None:
        self._workers, self._function, self._given = workers, function, given
        self._done: bytes | None = None
        self._died = False

    def result(self) -> Any:
        if self._done is not None and self._workers.dice.random() < self._workers.forgets:
            self._done = None  # its worker died after it was done
        while self._done is None:
            try:
                self._done = cloudpickle.dumps(self._do())
            except Died:
                continue
        return pickle.loads(self._done)

    def _do(self) -> Any:
        given = [one.result() if isinstance(one, Later) else one for one in self._given]
        given = pickle.loads(cloudpickle.dumps(given))
        found = self._function(*given)
        if self._workers.deadly and not self._died:
            self._died = True
            raise Died
        return found


class Fickle:
    """Workers that do tasks in any order, each on copies of what it is given.

    `deadly`: a worker dies in every task once. `forgets`: how likely what was done is lost when it
    is needed.
    """

    count = 2

    def __init__(self, dice: Random, *, deadly: bool = False, forgets: float = 0.0) -> None:
        self.dice, self.deadly, self.forgets = dice, deadly, forgets
        self.tasks: list[Later] = []

    def submit(self, function: Callable[..., Any], *given: object, soon: bool = False) -> Later:  # noqa: ARG002
        mine = Later(self, function, given)
        self.tasks.append(mine)
        near = self.tasks[-4:]
        for task in self.dice.sample(near, self.dice.randint(0, min(2, len(near)))):
            task.result()
        return mine


@cache
def _traces(directory: Path) -> dict[str, tuple[Path, str]]:
    """Traces with the JSON of one process."""
    measured = EnergyInfo("powercap", "measured", "a test")
    found = {
        "learned": long_trace.write(directory / "learned", 0),
        "lossy": long_trace.write(directory / "lossy", 1),
        "measured": long_trace.write(directory / "measured", 2, energy=measured),
        "estimated": long_trace.write(
            directory / "estimated",
            4,
            energy=replace(measured, source="estimated", grade="estimated"),
        ),
        "small": attribute_trace.write(directory / "small"),
    }
    return {name: (path, to_json(attribute(Trace(path)))) for name, path in found.items()}


NAMES = ("learned", "lossy", "measured", "estimated", "small")


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, str]]:
    return _traces(tmp_path_factory.mktemp("traces"))


def by_dice(dice: Random) -> attribution.Partition:
    def partition(cells: Sequence[int]) -> Sequence[int]:
        inner = [cell for cell in cells[1:-1] if dice.random() < 0.6]
        return (cells[0], *inner, cells[-1])

    return partition


@given(st.integers(0, 2**32), st.booleans(), st.sampled_from([0.0, 0.1]))
@settings(
    deadline=None, max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_division_order_and_death_gives_the_same_bytes(
    traces: dict[str, tuple[Path, str]], seed: int, deadly: bool, forgets: float
) -> None:
    dice = Random(seed)
    names = dice.sample(NAMES, 2)
    orders = [Order(Trace(traces[name][0]), Asked(), by_dice(Random(seed))) for name in names]
    found = attributed(orders, Fickle(dice, deadly=deadly, forgets=forgets))
    for name, (one, _) in zip(names, found, strict=True):
        assert to_json(one) == traces[name][1], name


@pytest.mark.parametrize("name", NAMES)
def test_every_cell_apart(traces: dict[str, tuple[Path, str]], name: str) -> None:
    path, expected = traces[name]
    seen: list[Sequence[int]] = []

    def each(cells: Sequence[int]) -> Sequence[int]:
        seen.append(cells)
        return cells

    ((found, _),) = attributed([Order(Trace(path), Asked(), each)], Fickle(Random(1)))
    assert to_json(found) == expected
    if name != "small":
        assert len(seen[0]) >= 4  # there was something to divide


def test_large_blocks_end_early_and_wait_in_a_file(
    traces: dict[str, tuple[Path, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells_of_time, "BLOCK_ENTRIES", 400)
    path, whole = traces["lossy"]
    expected = to_json(attribute(Trace(path)))
    assert expected != whole  # blocks are what is learned from
    held: list[int] = []
    size = HeldBlocks.__len__

    def counted(one: HeldBlocks) -> int:
        held.append(size(one))
        return held[-1]

    monkeypatch.setattr(HeldBlocks, "__len__", counted)
    ((found, _),) = attributed([Order(Trace(path), Asked(), by_dice(Random(2)))], Fickle(Random(2)))
    assert to_json(found) == expected
    assert max(held) > 4


def test_damage_is_told_as_one_process_tells_it(tmp_path: Path) -> None:
    path = long_trace.write(tmp_path / "t", 0)
    (part,) = (path / "segments").glob("*.parquet")
    data = bytearray(part.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 60] = bytes(60)
    part.write_bytes(data)
    expected = attribute(Trace(path))
    assert not expected.trace.complete
    ((found, _),) = attributed([Order(Trace(path), Asked(), by_dice(Random(3)))], Fickle(Random(3)))
    assert to_json(found) == to_json(expected)


def test_what_a_memory_learns_is_the_same(traces: dict[str, tuple[Path, str]]) -> None:
    told: list[Any] = []
    path, _ = traces["measured"]
    attribute(Trace(path), learned=told.extend)
    ((_, cells),) = attributed([Order(Trace(path), Asked(), by_dice(Random(4)))], Fickle(Random(4)))
    assert told
    assert [pickle.dumps(one) for one in cells] == [pickle.dumps(one) for one in told]
