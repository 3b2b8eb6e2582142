# SPDX-License-Identifier: Apache-2.0
"""How the driver bench measures: sides that take turns, and the results from their times."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from bench.drivers.figures import Added, added, instrument, line, verdict
from bench.drivers.turns import COUNTED, Side, Switch, Times, compare
from bench.overhead.stats import Estimate

from qjoule_drivers.shims.shim import Shim

NAME = "toy_driver_that_is_measured"
TURNS = 3000


class Connection:
    """A connection as a driver has it."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def send(self, what: str, *, times: int = 1) -> int:
        self.seen.append(what)
        return times


def _wrap(original: Any) -> Any:
    def send(self: Any, *args: Any, **options: Any) -> Any:
        self.seen.append("shim")
        return original(self, *args, **options)

    return send


@pytest.fixture
def shim(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shim]:
    module: Any = ModuleType(NAME)
    module.Connection = Connection
    module.__version__ = "1.0"
    monkeypatch.setitem(sys.modules, NAME, module)
    found = Shim(
        name=NAME,
        trigger=NAME,
        distribution="no-such-thing",
        tested=("1", "2"),
        modules=(NAME,),
        sites=((NAME, "Connection", "send", _wrap),),
    )
    assert found.install()
    yield found
    found.uninstall()


def test_calls_are_bare_or_wrapped_as_their_side_says(shim: Shim) -> None:
    wrapper = vars(Connection)["send"]
    switch, connection = Switch(shim), Connection()
    seen: dict[bool, set[tuple[str, ...]]] = {True: set(), False: set()}

    def call(shimmed: bool) -> None:
        connection.seen.clear()
        assert connection.send("x", times=3) == 3
        seen[shimmed].add(tuple(connection.seen))

    sides = [
        Side("bare", False, lambda: call(False)),
        Side("shimmed", True, lambda: call(True)),
    ]
    times = compare(switch, sides, 0.05, seed=1)
    assert seen == {True: {("shim", "x")}, False: {("x",)}}
    shapes = {
        (side.elapsed.shape[1], len(side.cpu) == len(side.elapsed)) for side in times.values()
    }
    assert shapes == {(COUNTED, True)}
    switch.take_out()
    assert vars(Connection)["send"] is wrapper


def _times(chance: np.random.Generator, more_us: float) -> Times:
    """Calls on a machine that gets slower and slower, each with a long tail."""
    drift = np.linspace(30, 60, TURNS)[:, None]
    elapsed = drift + chance.exponential(10, (TURNS, COUNTED)) + more_us
    return Times(elapsed, elapsed.mean(axis=1))


def test_what_was_added_is_found_below_drift_and_noise() -> None:
    chance = np.random.default_rng(1)
    bare = _times(chance, 0)
    found, null = added(_times(chance, 3), bare), added(_times(chance, 0), bare)
    assert found.elapsed.low < 3 < found.elapsed.high
    assert found.elapsed.high - found.elapsed.low < 1
    assert null.elapsed.low <= 0 <= null.elapsed.high
    first, second = instrument(null, found, 3.0)
    assert "µs: holds 0;" in first
    assert "µs: found;" in second


def test_an_instrument_that_does_not_measure_says_so() -> None:
    bare = _times(np.random.default_rng(1), 0)
    off = added(_times(np.random.default_rng(2), 6), bare)
    null, delay = instrument(off, off, 3.0)
    assert "DOES NOT HOLD 0" in null
    assert "NOT FOUND" in delay


def test_an_interval_that_holds_everything_proves_nothing() -> None:
    wide = Estimate(0.5, -90.0, 90.0, 0.999, 60)
    said = instrument(Added(wide, wide, 100.0), Added(wide, wide, 100.0), 3.0)
    assert all("too wide to tell" in words for words in said)


@pytest.mark.parametrize(
    ("low", "high", "word"), [(1, 5, "met"), (4, 6, "undecided"), (5.1, 9, "missed")]
)
def test_words_for_a_target(low: float, high: float, word: str) -> None:
    found = Estimate((low + high) / 2, low, high, 0.95, 60)
    assert verdict(found, 5.0) == word
    assert f"≤ 5 µs {word}," in line("mode", Added(found, found, bare=100.0))
    assert "≤ 1% (1.00 µs)" in line("mode", Added(found, found, bare=100.0))
