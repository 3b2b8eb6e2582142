# SPDX-License-Identifier: Apache-2.0
"""Laws of a machine's memory, on windows of known power and on simulated machines. Also: its
cells, and the memory in a live view.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import fake_tracer
import model_cases
from calibrations import NAMES, NOW_S, USUAL, cell, changed
from fake_tracer import BEGIN_NS, MS, block, end, energy, flush, head, text
from power_cases import FACTORS, IDLE_W, Known, calibrated, known
from qjoule.contract import LATENCY_BUCKETS, Block, OwnerKind
from qjoule.engine.class_keys import ClassKeys
from qjoule.engine.memory_adapter import MemoryAdapter
from qjoule.live.options import LiveOptions
from qjoule.live.sources import StreamSource
from qjoule.model.arrays import F64
from qjoule.model.batches import BLOCK_NS
from qjoule.model.coefficients import THETA, Coefficients
from qjoule.model.coefficients_used import Calibrated, Remembered
from qjoule.model.fit.cell_algebra import arrow, folded, restricted
from qjoule.model.fit.cells import Cell, Conditions, union
from qjoule.model.fit.evidence import Evidence
from qjoule.model.fit.remembered import EvidenceQuery, Now, combined_evidence
from qjoule.model.labels import GroupLabel
from qjoule.model.ledger import Ledger
from qjoule.snapshots import Controls, Snapshot
from qjoule.stream.blocks import Stream
from qjoule.trace.meta import Meta, Server

PACKAGE = "package"
LABELS = [GroupLabel("queries", (("fingerprint", f"{i:016x}"),), f"select {i}") for i in range(4)]
HOUR_S, DAY_S = 3_600.0, 86_400.0


def learn(
    cases: Known | Sequence[Known],
    cells: Sequence[Cell] = (),
    coefficients: Coefficients | None = None,
    *,
    source: int = 1,
    when_s: float = NOW_S,
) -> tuple[Ledger, tuple[Cell, ...]]:
    """The ledger of a trace whose windows are those of `cases` in turn, and the cells it learned.

    The trace begins at `when_s`.
    """
    cases = [cases] if isinstance(cases, Known) else cases
    offset_ns = round(when_s * 1e9)
    memory = MemoryAdapter(
        cells, ClassKeys(LABELS, {}), source, Now(when_s, Conditions()), offset_ns
    )
    account = model_cases.account(cases[0].series, (0,), coefficients, memory=memory)
    first = begin_ns = 0
    for case in cases:
        bounds_ns = case.batch.energy.boundaries_ns + begin_ns
        moved = replace(case.batch.energy, boundaries_ns=bounds_ns)
        account.add(replace(case.batch, first=first, energy=moved))
        first += len(case.batch.idle_ns)
        begin_ns = int(bounds_ns[-1])
    return account.finish(), memory.take()


def length_ns(case: Known) -> int:
    return int(np.diff(case.batch.energy.boundaries_ns[[0, -1]])[0])


def energies(ledger: Ledger) -> F64:
    return ledger.domains[PACKAGE].energy_nj.astype(np.float64)


def assert_conserved(ledger: Ledger, case: Known) -> None:
    sums = ledger.domains[PACKAGE]
    parts = int(sums.energy_nj.sum()) + sums.idle_nj + sums.residual_nj
    assert parts == sums.measured_nj == int(case.batch.energy.energy_nj.sum())


@pytest.mark.parametrize("seed", range(2))
def test_a_trace_in_two_parts_with_memory_between_is_as_one(seed: int) -> None:
    first, second = known(seed, FACTORS), known(seed + 100, FACTORS)
    assert length_ns(first) == BLOCK_NS  # so that both divide into the same blocks
    together, _ = learn([first, second])
    ledger_a, cells = learn(first)
    # The second part begins where the first one ends: its memory has no age.
    ledger_b, _ = learn(second, cells, source=2, when_s=NOW_S + BLOCK_NS * 1e-9)
    assert np.allclose(energies(ledger_a) + energies(ledger_b), energies(together), rtol=1e-4)
    model_together, model_after = together.models[PACKAGE], ledger_b.models[PACKAGE]
    assert np.allclose(model_together.factor, model_after.factor, rtol=1e-3)
    widths, others = (np.sqrt(np.diag(model.covariance)) for model in (model_together, model_after))
    # Windows tell nothing of these. One trace, without a memory, has a wider prior for its errors
    # of them (`Prior.unaided`).
    priors_alone = [2 + THETA.index(name) for name in ("kept", "p5", "p6", "p7", "p8", "p9")]
    assert (others[priors_alone] < widths[priors_alone]).all()
    assert np.allclose(np.delete(widths, priors_alone), np.delete(others, priors_alone), rtol=0.02)


@pytest.mark.parametrize("seed", range(2))
def test_a_shape_that_changed_is_named_within_a_block(seed: int) -> None:
    _, cells = learn(known(seed, FACTORS))
    same, _ = learn(known(seed + 50, FACTORS), cells, source=2, when_s=NOW_S + DAY_S)
    assert not same.notes
    changed = (1.25, 1.2, 1.0, 1.1)
    case = known(seed + 60, changed)
    ledger, later = learn(case, cells, source=2, when_s=NOW_S + DAY_S)
    assert list(ledger.notes) == ["select 1 does not draw what the memory says"]
    assert np.abs(energies(ledger) / case.energy_nj - 1).max() < 0.06
    # From now on only what was seen since counts.
    after_s = NOW_S + DAY_S + 60
    again, _ = learn(known(seed + 70, changed), (*cells, *later), source=3, when_s=after_s)
    assert not again.notes


def test_a_calibration_that_contradicts_the_memory_is_believed() -> None:
    _, cells = learn(known(1, FACTORS, idle_w=1.5 * IDLE_W))
    case = known(2, FACTORS)
    ledger, _ = learn(case, cells, calibrated(), source=2, when_s=NOW_S + DAY_S)
    plain, _ = learn(case, (), calibrated(), source=2)
    assert "the memory of package power contradicts the calibration: not used" in ledger.notes
    assert np.array_equal(energies(ledger), energies(plain))


@pytest.mark.parametrize("seed", range(3))
def test_energy_is_conserved_whatever_is_remembered(seed: int) -> None:
    case = known(seed, FACTORS, windows=300)
    _, cells = learn(known(seed + 1, (0.3, 3.0, 1.0, 2.0), idle_w=90.0))
    _, rested = learn(idling(seed, idle_w=(3.0, 60.0, 90.0)[seed]))
    for known_cells in (
        cells,
        [replace(cell_, centred=-5 * cell_.centred) for cell_ in cells],
        rested,
    ):
        ledger, _ = learn(case, known_cells, source=2, when_s=NOW_S + 60)
        assert_conserved(ledger, case)


# ---- power at rest -------------------------------------------------------------------------------
#
# The machine of the later windows never sleeps, so these cannot tell power at rest from the power
# that the package draws once while it is awake.


def idling(seed: int, idle_w: float = IDLE_W) -> Known:
    return known(seed, FACTORS, load=0.05, idle_w=idle_w)


def busy(seed: int, *, counters: bool = True) -> Known:
    return known(seed + 50, FACTORS, awake=True, counters=counters)


def rest_of(cells: Sequence[Cell]) -> list[Cell]:
    return [cell for cell in cells if cell.domain.endswith("/rest")]


def idle_error(ledger: Ledger) -> tuple[float, float]:
    """For power at rest as learned last: the difference from the truth, and its standard error."""
    model = ledger.models[PACKAGE]
    return abs(float(model.idle_w[0]) - IDLE_W), float(model.covariance[0, 0]) ** 0.5


@pytest.mark.parametrize("counters", [True, False])
def test_an_idle_minute_tells_a_busy_one_its_power_at_rest(counters: bool) -> None:
    _, cells = learn(idling(0))
    case = busy(0, counters=counters)
    alone, _ = learn(case, source=2, when_s=NOW_S + HOUR_S)
    ledger, _ = learn(case, cells, source=2, when_s=NOW_S + HOUR_S)
    error, sigma = idle_error(ledger)
    assert error < 3 * sigma and sigma < 0.05 * IDLE_W
    assert sigma < 0.5 * idle_error(alone)[1]


def test_only_an_idle_machine_tells_of_rest_and_only_one_number_a_package() -> None:
    for case in (known(1, FACTORS), busy(1)):
        _, cells = learn(case)
        assert cells and not rest_of(cells)
    (cell,) = rest_of(learn(idling(2))[1])
    assert cell.domain == f"{PACKAGE}/rest" and cell.names == ("idle_w.0",)
    assert not len(cell.keys) and cell.is_sound
    assert float(cell.moment[0] / cell.fixed[0, 0]) == pytest.approx(IDLE_W, rel=0.02)


# ---- cells of a memory: what adding, folding and ageing does to evidence -------------------------

ALL = np.arange(1, 20, dtype=np.uint64)


def estimate(report: Evidence) -> tuple[F64, F64]:
    """Values and standard errors under a wide prior around 2 (fixed) and 1 (shapes)."""
    count = len(report.moment) - len(NAMES)
    weight = np.append(np.full(len(NAMES), 1e-4), np.full(count, 0.15**-2.0))
    mean = np.append(np.full(len(NAMES), 2.0), np.ones(count))
    covariance = np.linalg.inv(report.precision + np.diag(weight))
    return covariance @ (report.moment + weight * mean), np.sqrt(np.diag(covariance))


def of(cells: list[Cell], keys: np.ndarray = ALL[:3], now_s: float = NOW_S) -> Evidence:
    releases = np.full(len(keys), 7, np.uint64)
    return combined_evidence(
        cells, EvidenceQuery("package", NAMES, keys, releases), Now(now_s, USUAL)
    )


def test_a_folded_cell_never_tells_more() -> None:
    for seed in range(8):
        original = cell(seed, 6)
        prior = np.diag(np.append(np.full(len(NAMES), 1e-6), np.full(6, 0.15**-2.0)))
        precision = restricted(original, NAMES, ALL[:6]).precision + prior
        less = restricted(arrow(original), NAMES, ALL[:6]).precision + prior
        assert np.linalg.eigvalsh(precision - less).min() > -1e-3 * precision.max()
        assert arrow(original).stored().is_sound


def test_evidence_never_counts_twice() -> None:
    a, b, c = cell(1), cell(2), cell(3)
    both = folded([a, b])
    assert union([a, a, b]) == union([b, a])
    assert [evidence.members.tolist() for evidence in union([a, both, c, b])] == [
        evidence.members.tolist() for evidence in union([c, both])
    ]
    assert len(union([both, folded([b, c])])) == 1  # they overlap: one of them must give way
    cells = [cell(seed, when_s=NOW_S - seed) for seed in range(6)]
    assert union([*cells[3:], *cells[:4], *cells]) == union(cells)
    assert union([*union(cells[:3]), *union(cells[3:])]) == union(cells)


def test_old_evidence_counts_less_and_less() -> None:
    """Evidence of the future ages as well: a clock was set back."""
    old = cell(5, windows=100_000)
    ages = [0.0, 60.0, 3600.0, 7 * DAY_S, 60 * DAY_S, 900 * DAY_S]
    estimates = [estimate(of([old], now_s=NOW_S + age)) for age in ages]
    assert all(abs(value[0] - 20.0) < 4 * sigma[0] for value, sigma in estimates)
    sigmas = [sigma for _, sigma in estimates]
    assert all((a <= b * (1 + 1e-9)).all() for a, b in pairwise(sigmas))
    # After an hour power at rest is known no better than it drifts; after a week, factors.
    assert sigmas[2][0] >= 0.9 * 0.02 * 20.0
    assert sigmas[3][len(NAMES) :].min() >= 0.024
    assert sigmas[5][len(NAMES) :].max() < 0.15
    assert np.allclose(estimate(of([old], now_s=NOW_S - 7 * DAY_S))[1], sigmas[3])
    # From 13 weeks on drift stays the same: only the half-life makes evidence count less.
    sigma_of = [estimate(of([old], now_s=NOW_S + days * DAY_S))[1] for days in (95, 118)]
    assert (sigma_of[1][len(NAMES) :] > 1.05 * sigma_of[0][len(NAMES) :]).all()
    many = [cell(seed, windows=50_000, when_s=NOW_S - 3600.0) for seed in range(40)]
    value, sigma = estimate(of(many))
    assert sigma[0] > 0.013 * 20.0, "a drift common to all is left"
    assert abs(value[0] - 20.0) < 4 * sigma[0]


def test_a_shape_that_changed_has_no_older_evidence() -> None:
    old, new = cell(1, when_s=NOW_S - 60), changed(cell(2, when_s=NOW_S), key=2)
    both, alone = (np.diag(of(cells).precision)[len(NAMES) :] for cells in ([old, new], [new]))
    assert both[1] == pytest.approx(alone[1], rel=0.05)
    assert both[0] > 1.5 * alone[0]
    assert 2 in folded([old, new]).keys[folded([old, new]).fresh]


# --------------------------------------------------------------------------------------------------
#
# The memory in a live view: what it learns is passed on, and what is known is used.

WINDOW = 100 * MS
WINDOWS = 700  #: one whole block, and a part of another
META = Meta(host="box", servers=(Server(1, "shop-db", "mysql", "8.0"),))
CONDITIONS = Conditions("6.1", "", "", "", "replay simulated")


def frames() -> Iterator[bytes]:
    """Two statements at random, each of a power of its own."""
    random = np.random.default_rng(1)
    yield head() + text(1, b"SELECT a") + text(2, b"SELECT b") + energy(BEGIN_NS, 1000, 0)
    raw = 0.0
    for number in range(WINDOWS):
        t0_ns = BEGIN_NS + number * WINDOW
        ms = random.uniform(5, 90, 2)
        raw += 2_000 + 5 * float(ms.max()) + float(ms @ np.array([13.0, 7.0]))
        rows = [
            {
                **{"t0_ns": t0_ns, "t1_ns": t0_ns + WINDOW, "owner_kind": OwnerKind.QUERY},
                **{"shape": shape + 1, "server": 1, "calls": 3, "latency_ns": 3 * MS},
                **{"cpu_ns": round(float(ms[shape]) * MS)},
                "latency": np.zeros(LATENCY_BUCKETS, np.uint32),
            }
            for shape in range(2)
        ]
        yield energy(t0_ns + WINDOW, 1000 + round(raw * 10), 0)
        yield block(Block.AGGREGATE, *rows) + flush(t0_ns + WINDOW)
    yield end(BEGIN_NS + WINDOWS * WINDOW)


def view(stream: bytes, known_cells: tuple[Cell, ...] = ()) -> tuple[Snapshot, list[Cell]]:
    """The last snapshot of a view that knows these cells, and the cells that it learns."""
    cells: list[Cell] = []
    used = Calibrated(memory=Remembered(known_cells, CONDITIONS, "a memory" if known_cells else ""))
    options = LiveOptions(choose=lambda _meta: used, on_learned=cells.extend)
    source = StreamSource(Stream(io.BytesIO(stream)), fake_tracer.context(META), options)
    return list(source.snapshots(Controls(10.0)))[-1], cells


def test_what_is_learned_is_passed_on_and_what_is_known_is_used_and_said() -> None:
    """The same stream is one source: its own cell is neither recalled nor counted as another's."""
    stream = b"".join(frames())
    plain, cells = view(stream)
    assert [(len(cell.keys), cell.conditions) for cell in cells] == [(2, CONDITIONS)]
    remembered, more = view(stream, tuple(cells))
    assert remembered.total.model.memory == "a memory"
    assert [cell.members.tolist() for cell in more] == [cells[0].members.tolist()]
    assert [row.energy_nj for row in remembered.total.rows] == [
        row.energy_nj for row in plain.total.rows
    ]
