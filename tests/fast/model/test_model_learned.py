# SPDX-License-Identifier: Apache-2.0
"""The regression over windows: accuracy, confidence, false data, and what reports say of it; its
parts: least squares, noise by frequency, slow drift, and coefficients.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import model_cases
from power_cases import FACTORS, IDLE_W, Known, calibrated, known, learned
from qjoule.errors import UsageError
from qjoule.model import assemble, latency
from qjoule.model.batches import cut
from qjoule.model.coefficients import Coefficients, IdlePolicy, PowerInterval, Weights
from qjoule.model.energy import Cause, Series
from qjoule.model.labels import GroupLabel
from qjoule.model.ledger import Ledger
from qjoule.model.nonnegative import solve_nonnegative
from qjoule.model.provenance import Provenance
from qjoule.model.result import TraceInfo
from qjoule.model.zones import left_out
from qjoule.reporters.json_report import to_json
from qjoule.reporters.table import render


@pytest.mark.parametrize("counters", [True, False])
def test_energy_of_statements_that_draw_more_than_they_weigh(counters: bool) -> None:
    case = known(1, FACTORS, counters=counters)
    refit = learned(case).domains["package"].energy_nj
    assert refit == pytest.approx(case.energy_nj, rel=0.05)
    by_weight = learned(case, refit=False).domains["package"].energy_nj
    assert np.abs(refit - case.energy_nj).sum() < np.abs(by_weight - case.energy_nj).sum() / 3


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    inside = []
    for seed in range(20):
        case = known(100 + seed, FACTORS, windows=400)
        low, high = learned(case, calibrated()).ci95()
        inside += ((low <= case.energy_nj) & (case.energy_nj <= high)).tolist()
    assert np.mean(inside) > 0.88


def test_neither_pieces_nor_looks_change_the_result() -> None:
    case = known(8, FACTORS, windows=1700)
    at_once, account = learned(case), model_cases.account(case.series, (0,), Coefficients())
    at = 0
    for size in (1, 3, 500, 900, 296):
        account.add(cut(case.batch, at, at + size))
        energy_nj = account.snapshot().domains["package"].energy_nj.tolist()
        at += size
    pieces = account.finish()
    assert pieces.domains["package"].energy_nj.tolist() == energy_nj
    assert at_once.domains["package"].energy_nj.tolist() == energy_nj
    assert [a.tolist() for a in pieces.ci95()] == [a.tolist() for a in at_once.ci95()]


def reported(ledger: Ledger) -> tuple[dict[str, Any], str]:
    """The JSON document and the table of a ledger, whose group g is the statement `select g`."""
    labels = [
        GroupLabel("queries", (("fingerprint", f"f{g}"),), f"select {g}")
        for g in range(ledger.groups)
    ]
    info = TraceInfo("db1", "kernel", "cpu", "2026-11-21T00:00:00Z", 30.0, True, {})
    about = Provenance(info, "powercap", "measured")
    calls = latency.CallStats.none(ledger.groups)
    attribution = assemble.attribution(ledger, labels, calls, about)
    table = " ".join(render(attribution, width=200).split())
    document: dict[str, Any] = json.loads(to_json(attribution))
    assert all(note in table for note in document["model"]["notes"])
    return document, table


def test_power_at_rest_is_reported_with_its_interval_if_windows_tell_it() -> None:
    document, table = reported(learned(known(1, (1.0, 1.0, 1.0))))
    assert "idle power is unknown" not in table
    pattern = r"learned from windows alone: ([\d.]+) W \[([\d.]+), ([\d.]+)\] of package 0"
    match = re.search(pattern, table)
    assert match
    value, low, high = map(float, match.groups())
    assert low < value < high
    assert low <= IDLE_W <= high
    coefficients = document["model"]["coefficients"]
    assert coefficients["idle_w.package.0"] == pytest.approx(value, abs=0.005)


def with_dram(case: Known, times: float) -> Known:
    """The case with a counter of DRAM beside, of so many times the package's power."""
    series = (*case.series, Series(0, "dram", 2.0**-16, 2**32))
    energy = case.batch.energy
    nj = np.vstack([energy.energy_nj, np.rint(energy.energy_nj * times).astype(np.int64)])
    nothing, certain = np.zeros(nj.shape, np.uint8), np.zeros(nj.shape, np.int64)
    energy = replace(energy, series=series, energy_nj=nj, cause=nothing, half_width_ns=certain)
    return replace(case, series=series, batch=replace(case.batch, energy=energy))


def test_dram_of_impossible_power_is_left_out_with_the_reason_and_the_package_goes_on() -> None:
    plain = known(1, FACTORS, windows=400)
    document, _ = reported(learned(with_dram(plain, 2.5)))
    assert document["energy_source"]["domains"] == ["package", "dram"]
    case = with_dram(plain, 8.0)
    ledger = learned(case)
    document, table = reported(ledger)
    assert document["energy_source"]["domains"] == ["package"]
    why = document["energy_source"]["left_out"]["dram"]
    assert re.fullmatch(r"it shows [\d.]+ W beside [\d.]+ W of its package 0: .* --meter\)", why)
    assert f"left out dram, which is in no row: {why}" in table
    package = learned(plain).domains["package"].energy_nj.tolist()
    assert ledger.domains["package"].energy_nj.tolist() == package
    account = model_cases.account(case.series, (0,), Coefficients())
    account.add(cut(case.batch, 0, 24))
    assert not account.snapshot().left_out, "so short a time shows no mean power"
    account.add(cut(case.batch, 24, 400))
    assert account.snapshot().left_out == {"dram": why}
    assert account.split([cut(case.batch, 390, 400)]).left_out == {"dram": why}


@pytest.mark.parametrize(
    ("package_w", "dram_w", "reason"),
    [
        ((6.0,), (200.0,), "it shows 200.0 W beside 6.0 W of its package 0: "),
        ((190.0, 243.0), (200.0, 6.0), "200.0 W beside 190.0 W of its package 0, and 6.0 W of"),
        *(((60.0, 50.0), dram_w, "") for dram_w in ((70.0, 5.0), (50.0, 1.0), (150.0, 140.0))),
    ],
)
def test_dram_is_judged_by_its_package_and_by_other_sockets(
    package_w: tuple[float, ...], dram_w: tuple[float, ...], reason: str
) -> None:
    named = (("package", package_w), ("dram", dram_w))
    rows: dict[tuple[int, str], Sequence[int]] = {
        (at, name): [round(w * 1e9)] for name, each in named for at, w in enumerate(each)
    }
    energy = model_cases.energy([0, 10**9], rows)
    batch = replace(known(1, (1.0,), windows=1).batch, energy=energy)
    why = left_out([batch], energy.series).get("dram", "")
    assert reason in why
    assert bool(why) == bool(reason)


def test_a_statement_that_draws_more_is_named() -> None:
    document, table = reported(learned(known(6, (1.4, 0.7, 1.0, 1.0)), calibrated(idle_w={})))
    row = next(row for row in document["rows"] if row["shape"] == "select 0")
    low, high = row["power_factor_ci95"]
    assert 1 < low < row["power_factor"] < high
    assert low < 1.4 < high
    times = "\N{MULTIPLICATION SIGN}"
    assert re.search(rf"draws 1\.\d+{times} \[.*\] what its weight says: select 0", table)


def test_statements_that_always_ran_together_are_flagged_and_not_told_apart() -> None:
    # Within the assumed error of weights: the windows carry no information on more.
    case = known(5, (1.1, 0.92, 1.0, 1.1), together=True)
    ledger = learned(case, calibrated())
    document, table = reported(ledger)
    rows = {row["shape"]: row for row in document["rows"]}
    assert "not_separable" in rows["select 0"]["flags"]
    assert "power_factor" not in rows["select 0"]
    assert "not_separable" not in rows["select 2"]["flags"]
    note = "select 0 and select 1 always ran together: their power cannot be told apart"
    assert table.count(note) == 1
    low, high = ledger.ci95()
    assert ((low <= case.energy_nj) & (case.energy_nj <= high)).all()
    # The sum of what the two drew is known far better than each of them.
    both = int(ledger.domains["package"].energy_nj[:2].sum())
    assert both == pytest.approx(case.energy_nj[:2].sum(), rel=0.03)


def test_a_machine_that_changed_is_learned_anew_and_noted() -> None:
    before, after = known(10, FACTORS, windows=3000), known(11, (0.8, 1.4, 1.0, 0.7))
    account = model_cases.account(before.series, (0,), calibrated())
    account.add(before.batch)
    energy = after.batch.energy
    bounds_ns = energy.boundaries_ns + before.batch.energy.boundaries_ns[-1]
    energy = replace(energy, boundaries_ns=bounds_ns)
    account.add(replace(after.batch, first=3000, energy=energy))
    ledger = account.finish()
    document, _ = reported(ledger)
    notes = [note for note in document["model"]["notes"] if note.startswith("package power")]
    assert notes
    assert all(re.fullmatch(r"package power .* \(\d+ times\)", note) for note in notes)
    total = before.energy_nj + after.energy_nj
    assert ledger.domains["package"].energy_nj == pytest.approx(total, rel=0.04)


# ---- the parts of the fit ------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_no_step_from_the_nonnegative_solution_makes_it_better(seed: int, size: int) -> None:
    random = np.random.default_rng(seed)
    x = random.normal(size=(size + 3, size))
    gram, moment = x.T @ x, random.normal(size=size)
    best = solve_nonnegative(gram, moment)
    assert (best >= 0).all()
    slope, tolerance = gram @ best - moment, 1e-4 * (1.0 + np.abs(moment).max())
    assert (slope > -tolerance).all()
    assert (np.abs(slope[best > 1e-9]) < tolerance).all()


def test_coefficients_come_back_as_they_were_stored() -> None:
    coefficients = Coefficients(
        a=1.5,
        covariance=tuple(map(tuple, np.eye(7).tolist())),
        calibrated=True,
        idle_w={(0, "package"): PowerInterval(3.0, 2.0, 4.0), (1, "dram"): PowerInterval(1, 1, 1)},
        shared_w={(0, "package"): 5.0},
        others={"dram": Weights(0.0, 0.0, 2.0), "package/time": Weights(0.0, t=4.0)},
    )
    assert Coefficients.from_json_dict(coefficients.to_json_dict()) == coefficients


@pytest.mark.parametrize(
    "wrong",
    [
        *(None, {"a": "much"}, {"a": float("nan")}, {"a": -1.0}, {"more": 1.0}),
        *({"covariance": [[1.0]]}, {"idle_w": [{"package": 0}]}, {"others": {"dram": {"a": None}}}),
    ],
)
def test_invalid_coefficients_are_refused(wrong: object) -> None:
    with pytest.raises(UsageError):
        Coefficients.from_json_dict(wrong)


# --------------------------------------------------------------------------------------------------
#
# For arbitrary windows, what is learned from them keeps the laws of energy and of numbers.

KEY = (0, "package")
POLICIES: tuple[IdlePolicy, ...] = ("separate", "even", "proportional")


@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.sampled_from([30, 64, 130]),
    groups=st.integers(1, 5),
    counters=st.booleans(),
    odd=st.sampled_from([0.0, 0.1, 1.0]),
    gaps=st.sampled_from([0.0, 0.5, 0.98]),
    wild=st.sampled_from([0.0, 0.01, 0.3]),
    wild_by=st.sampled_from([1e4, 1e8, 1e15]),
    broken=st.sampled_from([0.0, 0.5]),
    idle_w=st.sampled_from([None, 0.0, 5.0, 1e6]),
    shared_w=st.sampled_from([0.0, 3.0, 1e6]),
    calibrated=st.booleans(),
    policy=st.sampled_from(POLICIES),
    cut_at=st.integers(0, 128),
)
# Counters a million times what a core can count: rounding made the normal equations indefinite.
@example(
    **{"seed": 3107, "count": 64, "groups": 2, "counters": True, "odd": 0.0, "gaps": 0.5},
    **{"wild": 0.3, "wild_by": 1e15, "broken": 0.0, "idle_w": None, "shared_w": 1e6},
    **{"calibrated": True, "policy": "separate", "cut_at": 0},
)
def test_what_is_learned_from_nonsense_adds_up_and_is_a_number(
    *,
    seed: int,
    count: int,
    groups: int,
    counters: bool,
    odd: float,
    gaps: float,
    wild: float,
    wild_by: float,
    broken: float,
    idle_w: float | None,
    shared_w: float,
    calibrated: bool,
    policy: IdlePolicy,
    cut_at: int,
) -> None:
    """Windows `odd` have impossible energies, `gaps` none; counters `wild` are wrong."""
    random = np.random.default_rng(seed)
    factors = tuple(random.uniform(0.0, 3.0, groups))
    case = known(int(random.integers(2**31)), factors, windows=count, counters=counters)
    energy, cause = case.batch.energy.energy_nj.copy(), case.batch.energy.cause.copy()
    impossible = random.random(count) < odd
    energy[0, impossible] = random.choice([0, 1, 10**6, 10**12, 2**53 + 1, 2**55], impossible.sum())
    cause[0, random.random(count) < gaps] = Cause.GAP
    entries = case.batch.entries
    off = (random.random(entries.counters.shape) < wild) * wild_by
    unread = random.random(len(entries.window)) < broken
    entries = replace(
        entries,
        counters=np.where(unread[:, None], 0.0, entries.counters + off),
        counted_ns=np.where(unread[:, None], 0.0, entries.counted_ns),
    )
    known_energy = replace(case.batch.energy, energy_nj=energy, cause=cause)
    batch = replace(case.batch, entries=entries, energy=known_energy)
    idle = {} if idle_w is None else {KEY: PowerInterval(idle_w, idle_w / 2, idle_w * 2)}
    coefficients = Coefficients(idle_w=idle, shared_w={KEY: shared_w}, calibrated=calibrated)
    account = model_cases.account(case.series, (0,), coefficients, policy)
    at = 1 + cut_at % (count - 1)
    account.add(cut(batch, 0, at))
    account.snapshot()
    account.add(cut(batch, at, count))
    ledger = account.finish()
    sums = ledger.domains["package"]
    assert int(sums.energy_nj.sum()) + sums.idle_nj + sums.residual_nj == sums.measured_nj
    low, high = ledger.ci95()
    assert (low >= 0).all()
    assert (low <= sums.energy_nj).all()
    assert (sums.energy_nj <= high).all()
    assert np.isfinite(high).all()
    assert sums.idle_nj >= 0
    assert sums.residual_nj >= 0
    assert np.isfinite(sums.idle_slack_nj).all()
    for model in ledger.models.values():
        for values in (model.theta, model.factor, model.shared_w, model.covariance):
            assert np.isfinite(values).all()
        assert (model.theta >= 0).all()
        assert (model.factor >= 0).all()
