# SPDX-License-Identifier: Apache-2.0
"""Which waits' stacks are taken: all of few, and of many so many that sums stay unbiased."""

from __future__ import annotations

import ctypes
import math
from functools import cache

import numpy as np
import pytest

from host_library import compiled
from qjoule.contract import Wait
from qjoule.model.arrays import F64
from qjoule.model.charge import U64
from qjoule.model.energy import I64

S, MS = 1_000_000_000, 1_000_000
DRAWS, PERIOD_NS = 4, 4 * S // 25  #: of --stacks 99
FLAGS = ("-std=gnu11", "-O2", "-Wno-unused-parameter", "-Itests/support/fuzz/host")


@cache
def library() -> ctypes.CDLL:
    loaded = compiled("tests/support/tracer_parts/sample_host.c", compiler="clang", flags=FLAGS)
    loaded.waits_begin.argtypes = [ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint64]
    loaded.waits_run.argtypes = [ctypes.c_size_t, *[ctypes.c_void_p] * 3]
    return loaded


def draw(begin_ns: I64 | U64, kind: I64 | Wait = Wait.LOCK, *, seed: int = 1) -> F64:
    """The probability with which each wait was drawn; 0: it was not."""
    begins_ns = np.ascontiguousarray(begin_ns, np.uint64)
    kinds = np.full(len(begins_ns), kind, np.uint64)
    probability = np.zeros(len(begins_ns))
    library().waits_begin(DRAWS, PERIOD_NS, seed)
    arrays = (array.ctypes.data for array in (begins_ns, kinds, probability))
    library().waits_run(len(begins_ns), *arrays)
    return probability


def test_few_waits_are_all_drawn() -> None:
    """Also many kinds at once, and as many in a burst as in a period."""
    begin_ns = np.arange(0, 60 * S, PERIOD_NS // DRAWS + 1)
    assert (draw(begin_ns) == 1).all()
    bursts = (np.arange(100)[:, None] * PERIOD_NS + np.arange(DRAWS) * 1000).reshape(-1)
    assert (draw(bursts) == 1).all()
    kinds = np.arange(len(bursts)) % 5 + 1
    assert (draw(bursts, kinds) == 1).all()


def test_who_is_preempted_is_not_drawn() -> None:
    assert not draw(np.arange(10) * MS, Wait.RUN_QUEUE).any()


@pytest.mark.parametrize("per_s", [200, 5_000, 200_000])
def test_of_a_flood_no_more_are_drawn_than_stacks_are_sampled(per_s: int) -> None:
    """Its first period has more, by the logarithm of how many waits it has."""
    begin_ns = np.arange(0, 5 * S, S // per_s)
    drawn = np.bincount(begin_ns[draw(begin_ns) > 0] // PERIOD_NS)
    in_period = per_s * PERIOD_NS / S
    assert drawn[0] < 1.6 * DRAWS * (1 + math.log(in_period / DRAWS))
    assert drawn[1:-1].mean() == pytest.approx(DRAWS, rel=0.2)


def test_sums_are_unbiased_where_long_and_short_waits_take_turns() -> None:
    """A timer would fall into the long ones, and draw the short ones after them."""
    lengths_ns = np.tile([9 * MS, MS // 2], 600)
    begin_ns = np.cumsum(lengths_ns + MS // 20) - lengths_ns
    is_long = lengths_ns > MS
    sums = np.zeros((300, 2))
    for seed in range(len(sums)):
        p = draw(begin_ns, seed=seed)
        weighted = np.divide(lengths_ns, p, out=np.zeros(len(p)), where=p > 0)
        sums[seed] = weighted[is_long].sum(), weighted[~is_long].sum()
    true = np.array([lengths_ns[is_long].sum(), lengths_ns[~is_long].sum()])
    error = sums.std(axis=0) / math.sqrt(len(sums))
    assert (np.abs(sums.mean(axis=0) - true) < 4 * error).all()
    assert (error < 0.02 * true).all(), "or nothing would be tested"


def test_the_variance_that_is_reported_is_the_one_of_the_sums() -> None:
    rng = np.random.default_rng(1)
    begin_ns = np.sort(rng.integers(0, 4 * S, 4000))
    lengths_ns = rng.exponential(MS, len(begin_ns))
    sums, variances = [], []
    for seed in range(300):
        p = draw(begin_ns, seed=seed)
        drawn, weight = lengths_ns[p > 0], 1 / p[p > 0]
        sums.append((weight * drawn).sum())
        variances.append((weight * (weight - 1) * drawn**2).sum())
    assert np.mean(variances) == pytest.approx(np.var(sums), rel=0.3)
