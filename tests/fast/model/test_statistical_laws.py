# SPDX-License-Identifier: Apache-2.0
"""The statistical rung: finds true costs, intervals contain them, energy is neither made
nor lost.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qjoule.model.arrays import F64, Requests
from qjoule.model.energy import I64, Series
from qjoule.model.labels import SHAPE_OF, GroupLabel, background
from qjoule.model.ledger import Ledger
from qjoule.model.span_sums import CPU_TIME, SHAPES_HELD, SPANS_MAX, Roles, SpanSums
from qjoule.model.spans import learn, settle
from qjoule.model.statistical import SPANS_MIN, costs
from qjoule.servers.decoding import SERVING_THREADS

SPAN = 250e6


def simulated(
    rng: np.random.Generator, truth: F64, spans: int, base: float = 1e6
) -> tuple[F64, F64, F64]:
    """(y, counts, dt) with requests in waves that cost their shape's cost, with noise."""
    rate = 200 * np.exp(rng.normal(0, 0.7, (spans, len(truth))))
    counts = rng.poisson(rate).astype(np.float64)
    clean = base + counts @ truth
    y = np.maximum(clean + rng.normal(0, 1, spans) * np.sqrt(clean) * 300, 0.0)
    return y, counts, np.full(spans, SPAN)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """At least 95 %, of 400 seeded ones. More, because they allow for effects that these lack."""
    rng = np.random.default_rng(20261121)
    held = []
    for _ in range(100):
        truth = rng.uniform(5_000, 60_000, 4)
        found = costs(*simulated(rng, truth, 150))
        assert found.told.all()
        assert found.apart.all()
        held += list((found.low <= truth) & (truth <= found.high))
    assert np.mean(held) >= 0.95


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
    """Two shapes that always come together: neither gets its own cost, and both are marked so."""
    rng = np.random.default_rng(3)
    y, counts, dt = simulated(rng, np.array([3e4]), 400)
    found = costs(y, np.column_stack([counts, counts]), dt)
    assert not found.apart.any()
    assert found.value.sum() == pytest.approx(3e4, rel=0.1)
    assert ((found.high - found.low) > 0.5 * 3e4).all()


def test_counts_that_never_vary_tell_nothing_of_the_base() -> None:
    """All of it could be the base cost: the interval reaches down to zero."""
    rng = np.random.default_rng(5)
    y = 1e7 + rng.normal(0, 1e5, 200)
    found = costs(y, np.full((200, 1), 50.0), np.full(200, SPAN))
    assert not found.told.any() or found.low[0] < 0.5 * found.value[0]


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


@given(st.integers(0, 2**32 - 1), st.integers(10, 300), st.floats(0.0, 3.0))
def test_what_shapes_get_is_taken_from_serving_rows(seed: int, windows: int, scale: float) -> None:
    """To the nanojoule and the nanosecond. No other row changes, and none falls below zero."""
    rng = np.random.default_rng(seed)
    bounds = np.arange(windows + 1, dtype=np.int64) * 250_000_000
    series = Series(0, "package", 1e-6)
    ledger = Ledger((series,), (0,))
    ledger.grow(len(LABELS))
    ledger.spans = spans = SpanSums(Roles(LABELS, SERVING_THREADS))
    spans.add_time(bounds)
    counts = rng.poisson(30 * scale, (windows, 2))
    for group in (2, 3, 4, 5):
        share = 1e6 + counts @ np.array([2e5, 9e5]) * (group in (2, 3))
        for domain, sums in ((CPU_TIME, ledger.cpu_ns), ("package", None)):
            used = np.rint(share * rng.uniform(0.9, 1.1, windows)).astype(np.int64)
            target = ledger.domains["package"].energy_nj if sums is None else sums
            target[group] += used.sum()
            spans.add_used(domain, bounds[:-1], np.full(windows, group), used)
    spans.add_requests(bounds, requests(counts))
    energy, cpu = ledger.domains["package"].energy_nj, ledger.cpu_ns
    before = energy.copy(), cpu.copy()
    settle(ledger, learn(ledger))
    for now, then in ((energy, before[0]), (cpu, before[1])):
        assert now.sum() == then.sum()
        assert (now >= 0).all()
        assert (now[4:] == then[4:]).all()
        assert (now[:2] >= then[:2]).all()
    assert sorted(ledger.flags) == [0, 1]
    assert all(flags[0] == "statistical" for flags in ledger.flags.values())


@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 400), max_size=4), st.booleans())
def test_spans_know_nothing_of_how_windows_were_cut(seed: int, cuts: list[int], far: bool) -> None:
    """The same sums, bit for bit. Nothing is lost where spans become longer; never too
    many spans.
    """
    rng = np.random.default_rng(seed)
    steps = rng.choice(
        [20_000_000, 400_000_000, 10**13 if far else 10**9], 400, p=[0.8, 0.19, 0.01]
    )
    bounds = np.append(0, np.cumsum(steps)) + 10**15
    counts = rng.poisson(2, (400, 2))
    used = rng.integers(0, 10**9, 400)
    found = []
    for edges in ([0, 400], sorted({0, *cuts, 400})):
        spans = SpanSums(Roles(LABELS, SERVING_THREADS))
        for first, last in pairwise(edges):
            spans.add_time(bounds[first : last + 1])
            group = np.full(last - first, 2)
            spans.add_used("package", bounds[first:last], group, used[first:last])
            spans.add_requests(bounds[first : last + 1], requests(counts[first:last]))
            spans = spans.copy()
        found.append(spans)
    whole, pieces = found
    assert whole.dt_ns.tolist() == pieces.dt_ns.tolist()
    assert whole.dt_ns.sum() == bounds[-1] - bounds[0]
    assert len(whole.dt_ns) <= SPANS_MAX
    for shape in (0, 1):
        assert whole.counts[shape].tolist() == pieces.counts[shape].tolist()
        assert whole.counts[shape].sum() == counts[:, shape].sum()
    key = ("c", "package")
    assert whole.used[key].tolist() == pieces.used[key].tolist()
    assert whole.used[key].sum() == used.sum()


def test_shapes_beyond_those_held_are_counted_together() -> None:
    shapes = SHAPES_HELD + 10
    labels = [
        GroupLabel("queries", (("fingerprint", str(n)),), str(n), "c", "statistical", named=True)
        for n in range(shapes)
    ]
    spans = SpanSums(Roles(labels, SERVING_THREADS))
    bounds = np.array([0, 10**9])
    spans.add_time(bounds)
    spans.add_requests(bounds, requests(np.ones((1, shapes), np.int64)))
    assert len(spans.counts) == SHAPES_HELD
    assert spans.others["c"].sum() == 10


def test_others_are_not_taken_for_the_shapes_that_have_a_cost() -> None:
    """Rare requests coincide with frequent ones by chance; they do not get the others' cost."""
    rng = np.random.default_rng(11)
    y, counts, dt = simulated(rng, np.array([2e4, 3e4, 2e6]), 600)
    wave = rng.uniform(0.5, 1.5, 600)
    counts[:, 2] = rng.poisson(counts[:, 0] * wave)
    y = 1e6 + counts @ np.array([2e4, 3e4, 2e6]) * rng.uniform(0.95, 1.05, 600)
    with_others = costs(y, counts, dt)
    assert with_others.value[1] == pytest.approx(3e4, abs=2 * 3e4)
    assert with_others.value[2] == pytest.approx(2e6, rel=0.1)
    told = with_others.take(slice(2))
    assert len(told.value) == len(told.told) == 2


def requests(counts: I64) -> Requests:
    """(windows, shapes) as rows."""
    window, group = np.nonzero(counts)
    return Requests(window, group, counts[window, group])


def slow(rng: np.random.Generator, truth: F64, lasts_s: float, spans: int) -> tuple[F64, F64, F64]:
    """One client whose requests spread their time evenly over `lasts_s`, in a changing mix."""
    step_s, span_s = 0.005, SPAN * 1e-9
    steps = int(spans * span_s / step_s)
    counts, used = np.zeros((spans, len(truth))), np.zeros(steps + 1000)
    now_s = 0.0
    while now_s < spans * span_s:
        ends_s, mix = now_s + rng.uniform(0.3, 2.0), rng.choice([0.0, 0.25, 0.5, 1.0, np.nan])
        while now_s < min(ends_s, spans * span_s):
            if np.isnan(mix):
                now_s = ends_s
                break
            which = int(rng.random() < mix)
            counts[int(now_s / span_s), which] += 1
            first, last = int(now_s / step_s), int((now_s + lasts_s) / step_s)
            used[first : last + 1] += truth[which] * rng.uniform(0.8, 1.2) / (last + 1 - first)
            now_s += lasts_s * rng.uniform(0.9, 1.1)
    y = used[:steps].reshape(spans, -1).sum(axis=1)
    return y + 3e5 * rng.uniform(0.5, 1.5, spans), counts, np.full(spans, SPAN)


def test_requests_that_last_as_long_as_spans_are_not_told_too_cheap() -> None:
    """Some of their work is in later spans. Of 60 seeded costs, 90 % are within their intervals."""
    rng = np.random.default_rng(20261122)
    truth, held = np.array([2e6, 10e6]), []
    for lasts_s in (0.02, 0.1, 0.2):
        for _ in range(10):
            found = costs(*slow(rng, truth, lasts_s, 240))
            held += list((found.low <= truth) & (truth <= found.high))
    assert np.mean(held) >= 0.9


def test_requests_that_last_too_long_for_a_short_trace_are_not_told() -> None:
    rng = np.random.default_rng(20261123)
    found = [costs(*slow(rng, np.array([2e6, 10e6]), 0.5, 40)) for _ in range(20)]
    assert np.mean(["requests last" in one.reason for one in found]) >= 0.9


def test_tags_that_always_come_together_are_told_by_their_shapes() -> None:
    """Each tag's requests cost what their shapes cost, however similar the tags' counts are."""
    rng = np.random.default_rng(17)
    windows, truth, share = 400, np.array([2e5, 9e5]), np.array([[0.9, 0.2], [0.1, 0.8]])
    labels = [
        GroupLabel(
            "queries",
            (("tag:t", str(tag)), (SHAPE_OF, f"c {shape}")),
            f"{shape}",
            "c",
            "statistical",
            named=True,
        )
        for tag in (0, 1)
        for shape in (0, 1)
    ]
    labels.append(background("c", "ReadStage-?"))
    bounds = np.arange(windows + 1, dtype=np.int64) * 250_000_000
    ledger = Ledger((Series(0, "package", 1e-6),), (0,))
    ledger.grow(len(labels))
    ledger.spans = spans = SpanSums(Roles(labels, SERVING_THREADS))
    spans.add_time(bounds)
    asked = rng.poisson(np.exp(rng.normal(4, 0.7, (windows, 2))))
    first = rng.binomial(asked, share[0])
    counts = np.column_stack([first, asked - first])  # tag by tag, each with both shapes
    used = np.rint((1e6 + asked @ truth) * rng.uniform(0.97, 1.03, windows)).astype(np.int64)
    sums = ledger.domains["package"].energy_nj
    sums[4] = used.sum()
    spans.add_used("package", bounds[:-1], np.full(windows, 4), used)
    spans.add_requests(bounds, requests(counts))
    settle(ledger, learn(ledger))
    assert sums.sum() == used.sum()
    assert sums[:4] == pytest.approx(counts.sum(axis=0) * np.tile(truth, 2), rel=0.1)
    each = sums[:4] / counts.sum(axis=0)
    assert each[0] == pytest.approx(each[2], rel=1e-6)
    assert all(ledger.flags[group] == ("statistical",) for group in range(4))
