# SPDX-License-Identifier: Apache-2.0
"""The benches of overhead: what is measured below drift and noise, words, and empty programs."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from bench.drivers.turns import COUNTED, Added, Times, added, instrument, line, verdict
from bench.overhead import empty
from bench.overhead.stats import Estimate

TURNS = 3000


def _times(chance: np.random.Generator, more_us: float) -> Times:
    """Calls on a machine that gets slower and slower, each with a long tail."""
    drift = np.linspace(30, 60, TURNS)[:, None]
    elapsed = drift + chance.exponential(10, (TURNS, COUNTED)) + more_us
    return Times(elapsed, elapsed.mean(axis=1))


def test_what_was_added_is_found_below_drift_and_noise() -> None:
    chance = np.random.default_rng(1)
    bare = _times(chance, 0)
    with_shim, null = added(_times(chance, 3), bare), added(_times(chance, 0), bare)
    assert with_shim.elapsed.low < 3 < with_shim.elapsed.high
    assert with_shim.elapsed.high - with_shim.elapsed.low < 1
    assert null.elapsed.low <= 0 <= null.elapsed.high
    first, second = instrument(null, with_shim, 3.0)
    assert "µs: holds 0;" in first
    assert "µs: found;" in second


def test_an_instrument_that_is_off_or_too_wide_says_so() -> None:
    bare = _times(np.random.default_rng(1), 0)
    off = added(_times(np.random.default_rng(2), 6), bare)
    null, delay = instrument(off, off, 3.0)
    assert "DOES NOT HOLD 0" in null
    assert "NOT FOUND" in delay
    wide = Estimate(0.5, -90.0, 90.0, 0.999, 60)
    lines = instrument(Added(wide, wide, 100.0), Added(wide, wide, 100.0), 3.0)
    assert all("too wide to tell" in line for line in lines)


@pytest.mark.parametrize(
    ("low", "high", "word"), [(1, 5, "met"), (4, 6, "undecided"), (5.1, 9, "missed")]
)
def test_words_for_a_target(low: float, high: float, word: str) -> None:
    estimate = Estimate((low + high) / 2, low, high, 0.95, 60)
    assert verdict(estimate, 5.0) == word
    assert f"≤ 5 µs {word}," in line("mode", Added(estimate, estimate, bare=100.0))
    assert "≤ 1% (1.00 µs)" in line("mode", Added(estimate, estimate, bare=100.0))


def test_empty_programs_stand_on_the_hooks_of_the_real_ones() -> None:
    section = re.compile(r'SEC\("\??tp_btf/(\w+)"\)')
    real = {
        name
        for path in (Path(__file__).parents[3] / "bpf").glob("*/*.bpf.[ch]")
        for name in section.findall(path.read_text())
    } - {"sched_process_free"}  # of the variant for early kernels alone
    assert real == {*empty.ALWAYS, empty.SOCKET, empty.REDIS_SEND}
    assert set(section.findall((empty.HERE / "empty.bpf.c").read_text())) == real
