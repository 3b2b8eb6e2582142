"""The statistical rung: true costs are found, intervals hold them, nothing is made or lost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qjoule.model.arrays import F64
from qjoule.model.counters import I64, Series
from qjoule.model.labels import GroupLabel, background
from qjoule.model.ledger import Ledger
from qjoule.model.query_groups import Calls
from qjoule.model.spans import CPU_TIME, Spans
from qjoule.model.statistical import SPANS_MIN, costs

SPAN = 250e6


def simulated(
    rng: np.random.Generator, truth: F64, spans: int, base: float = 1e6
) -> tuple[F64, F64, F64]:
    """(y, counts, dt) where requests come in waves and cost what they cost, more or less."""
    rate = 200 * np.exp(rng.normal(0, 0.7, (spans, len(truth))))
    counts = rng.poisson(rate).astype(np.float64)
    clean = base + counts @ truth
    y = np.maximum(clean + rng.normal(0, 1, spans) * np.sqrt(clean) * 300, 0.0)
    return y, counts, np.full(spans, SPAN)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """95 % of them, of 1,200 seeded ones: within 92 and 98 %."""
    rng = np.random.default_rng(20261121)
    held = []
    for _ in range(300):
        truth = rng.uniform(5_000, 60_000, 4)
        found = costs(*simulated(rng, truth, 150))
        assert found.told.all()
        assert found.apart.all()
        held += list((found.low <= truth) & (truth <= found.high))
    assert 0.92 <= np.mean(held) <= 0.98


def test_costs_are_found() -> None:
    rng = np.random.default_rng(7)
    truth = np.array([2_000.0, 20_000.0, 200_000.0])
    found = costs(*simulated(rng, truth, 2000))
    assert found.value[1:] == pytest.approx(truth[1:], rel=0.05)
    assert found.low[0] <= truth[0] <= found.high[0]


def test_too_little_time_is_said() -> None:
    found = costs(*simulated(np.random.default_rng(1), np.array([1e4, 2e4]), SPANS_MIN + 8))
    assert not found.told.any()
    assert "too little time" in found.reason


def test_a_constant_mix_is_one_sum() -> None:
    """Two shapes that always come together: neither has a cost of its own, and both say so."""
    rng = np.random.default_rng(3)
    y, counts, dt = simulated(rng, np.array([3e4]), 400)
    found = costs(y, np.column_stack([counts, counts]), dt)
    assert not found.apart.any()
    assert found.value.sum() == pytest.approx(3e4, rel=0.1)
    assert ((found.high - found.low) > 0.5 * 3e4).all()


def test_counts_that_never_vary_tell_nothing_of_the_base() -> None:
    """All of it could be the base: the interval reaches down to nothing."""
    rng = np.random.default_rng(5)
    y = 1e7 + rng.normal(0, 1e5, 200)
    found = costs(y, np.full((200, 1), 50.0), np.full(200, SPAN))
    assert not found.told.any() or found.low[0] < 0.5 * found.value[0]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 60),
    st.integers(0, 5),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 1.0, 1e3, 1e15]),
)
def test_costs_are_finite_and_never_negative(
    spans: int, shapes: int, seed: int, size: float
) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.poisson(rng.choice([0, 1, 100], (spans, shapes))).astype(np.float64)
    y = np.abs(rng.normal(0, 1, spans)) * size
    dt = rng.uniform(1, 1e9, spans)
    found, again = costs(y, counts, dt), costs(y, counts, dt)
    for one, other in zip(
        (found.value, found.low, found.high), (again.value, again.low, again.high), strict=True
    ):
        assert np.isfinite(one).all()
        assert (one >= 0).all()
        assert one.tobytes() == other.tobytes()
    assert (found.low <= found.value).all()
    assert (found.value <= found.high).all()


LABELS = [
    GroupLabel("queries", (("fingerprint", "a"),), "a", "c", "statistical", named=True),
    GroupLabel("queries", (("fingerprint", "b"),), "b", "c", "statistical", named=True),
    background("c", "ReadStage-?"),
    background("c", "Native-Transpor"),
    background("c", "C2 CompilerThre"),
    background("other", "ReadStage-?"),
]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(10, 300), st.floats(0.0, 3.0))
def test_what_shapes_get_is_taken_from_serving_rows(seed: int, windows: int, scale: float) -> None:
    """To the nanojoule and the nanosecond; no other row changes, and none falls below zero."""
    rng = np.random.default_rng(seed)
    bounds = np.arange(windows + 1, dtype=np.int64) * 250_000_000
    series = Series(0, "package", 1e-6)
    ledger = Ledger((series,), (0,))
    ledger.grow(len(LABELS))
    spans = Spans(bounds, LABELS)
    counts = rng.poisson(30 * scale, (windows, 2))
    for group in (2, 3, 4, 5):
        share = 1e6 + counts @ np.array([2e5, 9e5]) * (group in (2, 3))
        for domain, sums in ((CPU_TIME, ledger.cpu_ns), ("package", None)):
            used = np.rint(share * rng.uniform(0.9, 1.1, windows)).astype(np.int64)
            target = ledger.domains["package"].energy_nj if sums is None else sums
            target[group] += used.sum()
            spans.add(domain, np.arange(windows), np.full(windows, group), used)
    for group in (0, 1):
        n = counts[:, group]
        rows = np.flatnonzero(n)
        none: I64 = np.full(len(rows), -1)
        spans.add_calls(Calls(np.full(len(rows), group), bounds[rows] + 5, none, n[rows]))
    energy, cpu = ledger.domains["package"].energy_nj, ledger.cpu_ns
    before = energy.copy(), cpu.copy()
    labels, _notes = spans.settle(ledger)
    for now, then in ((energy, before[0]), (cpu, before[1])):
        assert now.sum() == then.sum()
        assert (now >= 0).all()
        assert (now[4:] == then[4:]).all()
        assert (now[:2] >= then[:2]).all()
    assert all("statistical" in one.flags for one in labels[:2])
    assert [one.flags for one in labels[2:]] == [one.flags for one in LABELS[2:]]
