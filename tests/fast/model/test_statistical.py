# SPDX-License-Identifier: Apache-2.0
"""The statistical mode: it finds true costs, intervals hold them, and energy is conserved."""

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
from qjoule.model.span_sums import CPU_TIME, SPANS_MAX, Roles, SpanSums
from qjoule.model.spans import apply_regression_costs, learn
from qjoule.model.statistical import costs
from qjoule.servers.decoding import SERVING_THREADS

SPAN_NS = 250_000_000
SEEDS = st.integers(0, 2**32 - 1)


def lengths_ns(spans: int) -> F64:
    return np.full(spans, float(SPAN_NS))


def served(
    rng: np.random.Generator, truth: F64, spans: int, together: float = 0.0, slow: float = 0.0
) -> tuple[F64, F64, F64]:
    """CPU time and requests of each span, and the mean cost of a request of each shape.

    Requests come in waves, separate for each shape or common to all (`together` 1). `slow`: how
    much the machine's speed varies because others use it. A client that waits for its replies then
    sends less, and each request costs more.
    """
    wave = rng.normal(0, 0.7, (spans, 1)), rng.normal(0, 0.7, (spans, len(truth)))
    speed = rng.normal(0, 1, spans)
    for span in range(1, spans):
        speed[span] = 0.7 * speed[span - 1] + np.sqrt(1 - 0.7**2) * speed[span]
    factor = np.exp(slow * speed)[:, None]
    rate = rng.uniform(20, 400, len(truth)) * np.exp(wave[0] * together + wave[1] * (1 - together))
    counts = rng.poisson(rate / factor).astype(np.float64)
    clean = (1e6 + counts @ truth) * factor[:, 0]
    used = np.maximum(clean + rng.normal(0, 100, spans) * np.sqrt(clean), 0.0)
    return used, counts, (counts * factor).sum(axis=0) * truth / np.maximum(counts.sum(axis=0), 1)


@pytest.mark.parametrize("slow", [0.0, 0.3])
@pytest.mark.parametrize("together", [0.0, 1.0])
@pytest.mark.parametrize("spans", [40, 400])
def test_intervals_hold_the_truth(spans: int, together: float, slow: float) -> None:
    """For costs between 1 and 1000: at least 95 %. No interval is exactly zero."""
    rng, held = np.random.default_rng(20261121), []
    for _ in range(40):
        truth = np.exp(rng.uniform(np.log(1e3), np.log(1e6), rng.integers(1, 6)))
        used, counts, each = served(rng, truth, spans, together, slow)
        learned = costs(used, counts, lengths_ns(spans))
        if learned.reason:
            continue
        held += list((learned.low <= each) & (each <= learned.high))
        assert (learned.high * counts.sum(axis=0) / used.sum() > 1e-4).all()
    assert len(held) > 60
    assert np.mean(held) >= 0.95


@given(st.integers(1, 60), st.integers(0, 5), SEEDS, st.sampled_from([0.0, 1.0, 1e3, 1e15]))
def test_costs_are_finite_ordered_and_never_negative(
    spans: int, shapes: int, seed: int, size: float
) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.poisson(rng.choice([0, 1, 100], (spans, shapes))).astype(np.float64)
    learned = costs(np.abs(rng.normal(0, 1, spans)) * size, counts, rng.uniform(1, 1e9, spans))
    assert np.isfinite(learned.high).all()
    assert (learned.low >= 0).all()
    assert (learned.low <= learned.value).all()
    assert (learned.value <= learned.high).all()


def query(server: str, shape: str, *keys: tuple[str, str]) -> GroupLabel:
    labels = keys or (("fingerprint", shape),)
    return GroupLabel("queries", labels, shape, server, "statistical", named=True)


LABELS = [
    *(query("c", "a"), query("c", "b"), background("c", "ReadStage-?")),
    *(background("c", "Native-Transpor"), background("c", "C2 CompilerThre")),
    background("other", "ReadStage-?"),
]


def requests(counts: I64) -> Requests:
    """(windows, shapes) as rows."""
    window, group = np.nonzero(counts)
    return Requests(window, group, counts[window, group])


def ledger_of(labels: list[GroupLabel], bounds: I64, counts: I64) -> tuple[Ledger, SpanSums]:
    ledger = Ledger((Series(0, "package", 1e-6),), (0,))
    ledger.grow(len(labels))
    ledger.spans = spans = SpanSums(Roles(labels, SERVING_THREADS))
    spans.add_time(bounds)
    spans.add_requests(bounds, requests(counts))
    return ledger, spans


@given(SEEDS, st.integers(10, 300), st.floats(0.0, 3.0))
def test_what_shapes_get_is_taken_from_serving_rows(seed: int, windows: int, scale: float) -> None:
    """To the nanojoule and the nanosecond. No other row changes, and none falls below zero."""
    rng = np.random.default_rng(seed)
    bounds = np.arange(windows + 1, dtype=np.int64) * SPAN_NS
    counts = rng.poisson(30 * scale, (windows, 2))
    ledger, spans = ledger_of(LABELS, bounds, counts)
    energy, cpu = ledger.domains["package"].energy_nj, ledger.cpu_ns
    for group in (2, 3, 4, 5):
        share = 1e6 + counts @ np.array([2e5, 9e5]) * (group in (2, 3))
        for domain, target in ((CPU_TIME, cpu), ("package", energy)):
            used = np.rint(share * rng.uniform(0.9, 1.1, windows)).astype(np.int64)
            target[group] += used.sum()
            spans.add_used(domain, bounds[:-1], np.full(windows, group), used)
    before = energy.copy(), cpu.copy()
    apply_regression_costs(ledger, learn(ledger))
    for now, then in ((energy, before[0]), (cpu, before[1])):
        assert now.sum() == then.sum()
        assert (now >= 0).all()
        assert (now[4:] == then[4:]).all()
    low, high = ledger.ci95()
    assert (low <= energy).all()
    assert (energy <= high).all()
    assert (high[:2][counts.sum(axis=0) > 0] > 0).all(), "no row is certainly nothing"
    assert sorted(ledger.flags) == [0, 1]
    assert all(flags[0] == "statistical" for flags in ledger.flags.values())


@given(SEEDS, st.lists(st.integers(0, 400), max_size=4), st.booleans())
def test_spans_do_not_depend_on_how_windows_were_cut(seed: int, cuts: list[int], far: bool) -> None:
    """Nothing is lost where spans become longer, and there are never too many."""
    rng = np.random.default_rng(seed)
    choices = [20_000_000, 400_000_000, 10**13 if far else 10**9]
    steps = rng.choice(choices, 400, p=[0.8, 0.19, 0.01])
    bounds = np.append(0, np.cumsum(steps)) + 10**15
    counts, used = rng.poisson(2, (400, 2)), rng.integers(0, 10**9, 400)
    columns = []
    for edges in ([0, 400], sorted({0, *cuts, 400})):
        spans = SpanSums(Roles(LABELS, SERVING_THREADS))
        for first, last in pairwise(edges):
            spans.add_time(bounds[first : last + 1])
            group = np.full(last - first, 2)
            spans.add_used("package", bounds[first:last], group, used[first:last])
            spans.add_requests(bounds[first : last + 1], requests(counts[first:last]))
            spans = spans.copy()
        of = (spans.dt_ns, spans.counts[0], spans.counts[1], spans.used["c", "package"])
        columns.append([column.tolist() for column in of])
    assert columns[0] == columns[1]
    totals = [bounds[-1] - bounds[0], *counts.sum(axis=0), used.sum()]
    assert [sum(column) for column in columns[0]] == totals
    assert len(columns[0][0]) <= SPANS_MAX


def test_tags_that_always_come_together_are_told_apart_by_their_shapes() -> None:
    """Each tag's requests cost what their shapes cost, however similar the tags' counts are."""
    rng = np.random.default_rng(17)
    windows, truth, share = 400, np.array([2e5, 9e5]), np.array([0.9, 0.2])
    labels = [
        query("c", f"{shape}", ("tag:t", str(tag)), (SHAPE_OF, f"c {shape}"))
        for tag in (0, 1)
        for shape in (0, 1)
    ]
    labels.append(background("c", "ReadStage-?"))
    bounds = np.arange(windows + 1, dtype=np.int64) * SPAN_NS
    calls = rng.poisson(np.exp(rng.normal(4, 0.7, (windows, 2))))
    first = rng.binomial(calls, share)
    counts = np.column_stack([first, calls - first])  # tag by tag, each with both shapes
    ledger, spans = ledger_of(labels, bounds, counts)
    used = np.rint((1e6 + calls @ truth) * rng.uniform(0.97, 1.03, windows)).astype(np.int64)
    sums = ledger.domains["package"].energy_nj
    sums[4] = used.sum()
    spans.add_used("package", bounds[:-1], np.full(windows, 4), used)
    apply_regression_costs(ledger, learn(ledger))
    assert sums.sum() == used.sum()
    assert sums[:4] == pytest.approx(counts.sum(axis=0) * np.tile(truth, 2), rel=0.1)
    each = sums[:4] / counts.sum(axis=0)
    assert each[0] == pytest.approx(each[2], rel=1e-6)
