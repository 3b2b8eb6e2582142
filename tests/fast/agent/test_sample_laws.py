# SPDX-License-Identifier: Apache-2.0
"""Laws of the sample: each shape has a query, estimates are unbiased, intervals cover 95 %."""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_library import compiled
from qjoule.model.arrays import F64
from qjoule_fleet.sampling import FEW, estimate

U64 = npt.NDArray[np.uint64]


@cache
def _library() -> ctypes.CDLL:
    flags = (
        "-std=gnu11",
        "-D_GNU_SOURCE",
        "-O2",
        "-Wno-unused-parameter",
        "-Itests/support/fuzz/host",
    )
    loaded = compiled("tests/support/tracer_parts/sample_host.c", compiler="clang", flags=flags)
    loaded.sample_begin.argtypes = [ctypes.c_uint32, ctypes.c_uint64]
    loaded.sample_run.argtypes = [ctypes.c_size_t, *[ctypes.c_void_p] * 3]
    loaded.sample_lost.restype = ctypes.c_uint32
    return loaded


def draw(samples: int, shape: U64, end_ns: U64, *, seed: int = 1) -> F64:
    """The probability with which each query was drawn; 0: it was not. Times do not decrease."""
    library = _library()
    shape, end_ns = np.ascontiguousarray(shape, np.uint64), np.ascontiguousarray(end_ns, np.uint64)
    probability = np.zeros(len(shape))
    library.sample_begin(samples, seed)
    library.sample_run(len(shape), *(one.ctypes.data for one in (shape, end_ns, probability)))
    return probability


def lost() -> int:
    """Queries of the last `draw` that were drawn, but for which there was no room."""
    return int(_library().sample_lost())


PERIOD_S = 300
REPEATS = 2000
#: Coverage of 95 % intervals that is asked for; its standard error in `REPEATS` is 0.5 %.
LOW, HIGH = 0.93, 0.97
SEED = 20261124


def times(rates_per_s: list[float], *, hours: float = 1.0, seed: int = SEED) -> tuple[U64, U64]:
    """Shapes with these rates, whose queries end at random: shape and time of each."""
    rng = np.random.default_rng(seed)
    seconds = hours * 3600
    counts = rng.poisson([rate * seconds for rate in rates_per_s])
    shape = np.repeat(np.arange(1, len(rates_per_s) + 1), counts).astype(np.uint64)
    end_ns = (rng.random(len(shape)) * seconds * 1e9).astype(np.uint64) + 10**9
    order = np.argsort(end_ns)
    return shape[order], end_ns[order]


@given(
    st.lists(st.floats(0.001, 20), min_size=1, max_size=12),
    st.integers(1, 50),
    st.integers(0, 2**32),
)
def test_each_shape_has_a_query_in_each_period(rates: list[float], samples: int, seed: int) -> None:
    shape, end_ns = times(rates, hours=0.5, seed=seed)
    probability = draw(samples, shape, end_ns, seed=seed)
    cells = set(zip(shape.tolist(), (end_ns // (PERIOD_S * 10**9)).tolist(), strict=True))
    drawn = probability > 0
    found = zip(shape[drawn].tolist(), (end_ns[drawn] // (PERIOD_S * 10**9)).tolist(), strict=True)
    assert lost() or set(found) == cells
    assert ((probability >= 0) & (probability <= 1)).all()


@pytest.mark.parametrize("rate", [0.5, 400.0])
def test_as_many_are_drawn_however_many_there_are(rate: float) -> None:
    shape, end_ns = times([rate])
    drawn = np.count_nonzero(draw(10, shape, end_ns))
    periods = 3600 / PERIOD_S
    # In the first period the number of calls is not known yet: the sum of 10 / n over its calls.
    first = 10 * (1 + np.log(max(rate * PERIOD_S / 10, 1)))
    assert drawn <= 1.5 * (11 * periods + first)


def test_beyond_a_bound_draws_are_counted_as_lost() -> None:
    shape = np.arange(5000, dtype=np.uint64) % 60 + 1
    end_ns = np.full(5000, 10**10, np.uint64)
    probability = draw(1000, shape, end_ns)
    assert np.count_nonzero(probability) + lost() >= 5000
    assert np.count_nonzero(probability) <= 1001


def _covered(shape: U64, end_ns: U64, value: F64, mine: F64) -> tuple[float, float, float]:
    """Share of samples whose interval has the truth, mean error, and its standard error."""
    truth = float(value @ mine)
    inside, errors, told = 0, [], 0
    for seed in range(REPEATS):
        probability = draw(10, shape, end_ns, seed=seed)
        drawn = np.flatnonzero(probability)
        group = np.zeros(len(drawn), np.int64)
        found = estimate(value[drawn] * mine[drawn], probability[drawn], group, 1)
        errors.append(found.total[0] / truth - 1)
        by_chance = np.count_nonzero(mine[drawn] * (probability[drawn] < 1))
        if by_chance < FEW:
            continue
        told += 1
        inside += abs(found.total[0] - truth) <= found.half_width[0]
    assert told > REPEATS / 2
    return inside / told, float(np.mean(errors)), float(np.std(errors)) / REPEATS**0.5


def test_estimates_are_unbiased_and_intervals_cover() -> None:
    """Of a user who sends 40 % of the queries of two shapes."""
    rng = np.random.default_rng(SEED)
    shape, end_ns = times([1.0, 4.0])
    value = rng.lognormal(0.0, 1.0, len(shape)) * np.where(shape == 1, 1.0, 0.3)
    mine = (rng.random(len(shape)) < 0.4).astype(np.float64)
    covered, error, of_error = _covered(shape, end_ns, value, mine)
    assert abs(error) <= 4 * of_error, "unbiased"
    assert LOW <= covered <= HIGH, covered
