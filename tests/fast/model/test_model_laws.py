# SPDX-License-Identifier: Apache-2.0
"""The model's laws, over drawn machines, segments, energies and losses. Also: rows that a learner
merges from windows.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import model_cases
from model_cases import Case, cases
from power_cases import FACTORS, calibrated, known
from qjoule.engine.live import from_aggregates
from qjoule.engine.live_groups import LiveGroups
from qjoule.engine.live_owners import LiveNames, identities
from qjoule.model import assemble, latency
from qjoule.model.arrays import EFFECTS, F64, LostTime, Requests
from qjoule.model.coefficients import IDLE_POLICIES, THETA, Coefficients
from qjoule.model.features import FEATURES, entry_features
from qjoule.model.fit.learner import Learner
from qjoule.model.fit.merging import merged, thinned
from qjoule.model.fit.observed import Rows, predict
from qjoule.model.fit.solo import narrowed, noise_of
from qjoule.model.labels import GroupLabel, process
from qjoule.model.ledger import Ledger
from qjoule.model.provenance import Provenance
from qjoule.model.result import PARTS, Attribution, Row, TraceInfo
from qjoule.model.span_sums import Roles
from qjoule.reporters.json_report import to_json

GROUPS = 6
LABELS = [GroupLabel("queries", (("fingerprint", f"f{g}"),)) for g in range(3)]
LABELS += [process(f"p{g}") for g in range(3)]


INFO = TraceInfo("host", "6.1", "cpu", "", 1.0, True, {})


def result(ledger: Ledger) -> Attribution:
    about = Provenance(INFO, "replay", "simulated")
    return assemble.attribution(ledger, LABELS, latency.CallStats.none(GROUPS), about)


@given(cases(), st.lists(st.integers(0, 25), max_size=3), st.booleans())
def test_law1_time_is_conserved_to_the_nanosecond(
    case: Case, cuts: list[int], learns: bool
) -> None:
    cuts = [min(cut, len(case.segments.t0_ns)) for cut in cuts]
    ran = model_cases.run(case, cuts, refit=learns)
    sizes = np.bincount(case.machine.package_slots())
    windows = 0
    for batch in ran.batches:
        dt_ns = np.diff(batch.energy.boundaries_ns)
        busy = np.zeros((len(dt_ns), len(sizes)), np.int64)
        entries = batch.entries
        np.add.at(busy, (entries.window, entries.package), entries.cpu_ns)
        assert (busy + batch.idle_ns + batch.lost_ns == dt_ns[:, None] * sizes).all()
        assert (batch.idle_ns >= 0).all()
        assert (batch.lost_ns >= 0).all()
        assert ((entries.cpu_ns > 0) | (entries.effects > 0).any(axis=1)).all()
        windows += len(dt_ns)
    assert windows == len(case.energy.boundaries_ns) - 1


def rows(attribution: Attribution) -> list[Row]:
    return [*attribution.rows, *attribution.fixed]


@given(cases(), st.booleans())
def test_law2_energy_is_conserved_per_window_package_and_domain(case: Case, learns: bool) -> None:
    ran = model_cases.run(case, refit=learns)
    for batch, splits in zip(ran.batches, ran.splits, strict=True):
        for s, split in enumerate(splits):
            expected = np.where(batch.energy.known[s], batch.energy.energy_nj[s], 0)
            assert (split.entry_nj >= 0).all()
            assert (split.idle_nj >= 0).all()
            assert (split.residual_nj >= 0).all()
            # Series that span packages have their own rows, so sum them through the total.
            total = int(split.entry_nj.sum() + split.idle_nj.sum() + split.residual_nj.sum())
            assert total == int(expected.sum())
            series = batch.energy.series[s]
            if series.domain != "psys":
                mine = batch.entries.package == ran.ledger.packages.index(series.package)
                per_window = split.idle_nj + split.residual_nj
                np.add.at(per_window, batch.entries.window[mine], split.entry_nj)
                assert (per_window == expected).all()
    for domain in result(ran.ledger).domains:
        assert sum(domain.parts_nj[part] for part in PARTS) == domain.measured_nj


@given(cases(), st.lists(st.floats(0, 1), min_size=26, max_size=26), st.booleans())
def test_law2_stolen_time_is_a_part_of_cpu_time_and_no_joule_is_lost_without_it(
    case: Case, shares: list[float], learns: bool
) -> None:
    shares_of = np.array(shares[: len(case.segments.t0_ns)], np.float32)
    stolen = replace(case, segments=replace(case.segments, stolen=shares_of))
    plain = model_cases.run(case, refit=learns)
    shown = model_cases.run(stolen, refit=learns)
    without = model_cases.run(stolen, refit=learns, without_stolen=True)
    assert to_json(result(shown.ledger)) == to_json(result(plain.ledger))
    without.ledger.grow(GROUPS)
    assert (shown.ledger.stolen_ns <= shown.ledger.cpu_ns * (1 + 1e-9)).all()
    assert (without.ledger.cpu_ns + without.ledger.stolen_ns == plain.ledger.cpu_ns).all()
    assert without.ledger.stolen_ns == pytest.approx(shown.ledger.stolen_ns, abs=200)
    for batch in without.batches:
        assert (batch.entries.overlap_ns <= batch.entries.cpu_ns).all()
    for domain, before in zip(
        result(without.ledger).domains, result(plain.ledger).domains, strict=True
    ):
        assert domain.measured_nj == before.measured_nj
        assert sum(domain.parts_nj[part] for part in PARTS) == domain.measured_nj
    unchanged = model_cases.run(case, refit=learns, without_stolen=True)
    assert to_json(result(unchanged.ledger)) == to_json(result(plain.ledger))


@given(cases(tidy=True))
def test_law3_lost_time_is_residual_and_intervals_reach_what_was_lost(case: Case) -> None:
    case = replace(case, coefficients=Coefficients())
    loss = LostTime(0, case.energy.boundaries_ns[[0, -1]], np.array([0, 2**40], np.int64))
    ran = model_cases.run(replace(case, lost=(loss,)))
    calm, lossy = result(model_cases.run(case).ledger), result(ran.ledger)
    assert ran.ledger.lost_ns + ran.anomalies.lost_unplaced_ns == 2**40
    before = {str(row.keys): row for row in (*calm.rows, *calm.fixed)}
    for row in (r for r in (*lossy.rows, *lossy.fixed) if r.keys):
        was = before[str(row.keys)]
        # Whoever ran in the lost time, the row's interval still contains what it would have had.
        slack = 2 * calm.windows + 1e-9 * was.energy_nj
        assert row.energy_nj <= was.energy_nj + slack
        assert row.energy_nj_ci95[1] >= was.energy_nj - slack
    assert any(row.kind == "residual" and row.cpu_ns == ran.ledger.lost_ns for row in lossy.fixed)


@given(cases(), st.lists(st.integers(0, 25), max_size=4))
def test_law4_how_a_trace_is_cut_does_not_change_a_byte(case: Case, cuts: list[int]) -> None:
    cuts = [min(cut, len(case.segments.t0_ns)) for cut in cuts]
    once, again = model_cases.run(case), model_cases.run(case, cuts)
    assert once.ledger.cpu_ns.tolist() == again.ledger.cpu_ns.tolist()
    for name, sums in once.ledger.domains.items():
        other = again.ledger.domains[name]
        assert sums.energy_nj.tolist() == other.energy_nj.tolist()
        assert (sums.idle_nj, sums.residual_nj) == (other.idle_nj, other.residual_nj)
    assert to_json(result(once.ledger)) == to_json(result(model_cases.run(case).ledger))


@given(cases(), st.booleans())
def test_windows_alone_are_split_when_they_are_added_as_they_are_afterwards(
    case: Case, counts: bool
) -> None:
    batches = model_cases.run(case).batches
    if counts:
        first = np.zeros(1, np.int64)
        batches[-1] = replace(batches[-1], requests=Requests(first, first, first + 3))
    account = model_cases.account(
        *(case.energy.series, case.machine.packages, case.coefficients, case.idle),
        refit=False,
        roles=Roles([replace(LABELS[0], attach_mode="statistical")]),
    )
    for batch in batches:
        account.add(batch)
    total, alone = account.snapshot(), account.split(batches[-1:])
    assert alone.spans is not None
    assert alone.spans.calls == ({0: 3.0} if counts else {})
    when_added = to_json(result(alone))
    alone.move(0, 1)
    assert to_json(result(account.split(batches[-1:]))) == when_added
    assert to_json(result(account.snapshot())) == to_json(result(total))


@given(cases(tidy=True))
def test_the_kernels_sums_make_the_windows_that_segments_make(case: Case) -> None:
    # The kernel's sums record who ran in a window, but not who ran at the same instant as whom.
    case = replace(case, coefficients=replace(case.coefficients, shared_w={}, kept=0.0))
    offline, live = (
        Ledger(case.energy.series, case.machine.packages, case.coefficients, case.idle)
        for _ in range(2)
    )
    # One block, as live. Errors in the packages' power at rest add up in squares within a block,
    # and linearly across blocks.
    offline.add_block(model_cases.run(case).batches, {})
    records = model_cases.aggregates(case, GROUPS)
    group = records["tgid"].astype(np.int64) - 1
    live.add_block([from_aggregates(records, group, case.energy, case.machine)], {})
    names = LiveNames(lambda shape: (f"{shape}", ""), str, lambda tgid: f"p{tgid}", str)
    owners, which = identities(records)
    numbers = LiveGroups(names).numbers(owners)[which].tolist()
    assert len(set(zip(numbers, group.tolist(), strict=True))) == len(set(group.tolist()))
    for ledger in (offline, live):
        ledger.grow(GROUPS)
    assert live.cpu_ns.tolist() == offline.cpu_ns.tolist()
    assert live.idle_ns == offline.idle_ns
    for live_row, offline_row in zip(rows(result(live)), rows(result(offline)), strict=True):
        # Interval ends are sums of floats in another order.
        assert live_row.energy_nj_ci95 == pytest.approx(
            offline_row.energy_nj_ci95, rel=1e-9, abs=1.5
        )
        by_domain = offline_row.energy_by_domain_ci95
        assert live_row.energy_by_domain_ci95.keys() == by_domain.keys()
        for domain, ends in live_row.energy_by_domain_ci95.items():
            assert ends == pytest.approx(by_domain[domain], rel=1e-9, abs=1.5)
        ends_of_other = replace(live_row, energy_nj_ci95=offline_row.energy_nj_ci95)
        assert replace(ends_of_other, energy_by_domain_ci95=by_domain) == offline_row


def case_of(
    bounds: list[int], nj: list[int], rows: list[tuple[int, int, int, int]], *lost: LostTime
) -> Case:
    """One CPU."""
    energy = model_cases.energy(bounds, {(0, "package"): nj})
    segments = model_cases.segments(rows)
    return Case(model_cases.machine(0), energy, segments, lost, Coefficients(), "separate")


def test_law4_lost_time_that_does_not_fit_waits_for_the_next_window() -> None:
    lost = LostTime(0, np.array([0, 4, 12], np.int64), np.array([0, 6, 6], np.int64))
    batches = model_cases.run(case_of([0, 4, 8, 12], [80] * 3, [(9, 10, 0, 1)], lost)).batches
    assert np.concatenate([b.lost_ns for b in batches]).ravel().tolist() == [4, 2, 0]


@given(cases())
def test_every_figure_is_a_number_and_policies_move_only_idle_energy(case: Case) -> None:
    totals = []
    for policy in IDLE_POLICIES:
        attribution = result(model_cases.run(replace(case, idle=policy)).ledger)
        totals.append([domain.measured_nj for domain in attribution.domains])
        for row in (*attribution.rows, *attribution.fixed):
            low, high = row.energy_nj_ci95
            assert 0 <= low <= float(row.energy_nj) <= high < float("inf")
            assert row.cpu_ns >= 0
        to_json(attribution)  # raises for NaN and infinity
    assert totals[0] == totals[1] == totals[2]


# --------------------------------------------------------------------------------------------------
#
# Rows that a learner merges from windows, and the moments in which one class ran alone.

CLASSES = 3
SIZE = 2 + len(THETA) + CLASSES


def rows_of(seed: int, count: int, unknown: float = 0.0) -> Rows:
    """Windows of one zone in which classes come and go."""
    random = np.random.default_rng(seed)
    busy = random.random((count, CLASSES + 1)) * (random.random((count, CLASSES + 1)) < 0.4)
    features = np.zeros((count, CLASSES + 1, len(FEATURES)))
    features[:, :, FEATURES.index("cpu_ns")] = busy
    features[:, :, FEATURES.index("cycles")] = 3.0 * busy
    return Rows(
        power_w=random.uniform(10, 50, count),
        known=random.random(count) >= unknown,
        zone=np.zeros(count, np.int64),
        active=np.minimum(busy.sum(axis=1), 1.0),
        crowd=np.ones((count, CLASSES + 1)),
        features=features,
        classes=np.arange(CLASSES),
        effects=np.zeros((count, len(EFFECTS))),
        edge_w=np.array([0.5]),
        step_s=0.02,
    )


def value_of() -> F64:
    value = np.concatenate([[20.0, 8.0], np.zeros(len(THETA)), np.ones(CLASSES)])
    value[2 + THETA.index("a")] = 2.0
    return value


def information(rows: Rows, covariance: F64) -> F64:
    """The information of all parameters, in units of `covariance`; a row counts by its length."""
    slopes = predict(rows, value_of())[1] * np.sqrt(rows.lengths_s)[:, None]
    root = np.linalg.cholesky(covariance)
    scaled = slopes @ root
    return np.asarray(scaled.T @ scaled)


def covariance_of(seed: int) -> F64:
    root = np.random.default_rng(seed).normal(size=(SIZE, SIZE))
    return np.asarray(root @ root.T / SIZE + 1e-3 * np.eye(SIZE))


@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 90), width=st.integers(2, 9))
def test_merging_conserves_time_energy_and_work_and_invents_no_information(
    seed: int, count: int, width: int
) -> None:
    """What separate rows tell, less what merged rows tell, is not negative in any direction; and
    the rows chosen lose no more than even ones."""
    rows, covariance = rows_of(seed, count, unknown=0.1), covariance_of(seed)
    merged_rows = merged(rows, width, covariance, value_of(), 1.0)
    lengths = np.rint(merged_rows.lengths_s / rows.step_s).astype(int)
    assert lengths.sum() == count
    assert (lengths >= min(width, count)).all()
    assert count < 2 * width or (lengths < 2 * width).all()
    ends = np.cumsum(lengths).tolist()
    assert merged_rows.known.tolist() == [rows.known[a:b].all() for a, b in pairwise([0, *ends])]
    for name in ("power_w", "active", "features", "effects"):
        before, after = getattr(rows, name), getattr(merged_rows, name)
        sums = np.tensordot(merged_rows.lengths_s, after, 1)
        np.testing.assert_allclose(sums, rows.step_s * before.sum(axis=0), rtol=1e-9, atol=1e-12)
    rows = rows_of(seed, count)
    merged_rows = merged(rows, width, covariance, value_of(), 1.0)
    apart, together = information(rows, covariance), information(merged_rows, covariance)
    assert np.linalg.eigvalsh(apart - together).min() > -1e-9 * max(np.trace(apart), 1.0)
    if count % width == 0:  # else even rows leave out the last windows
        even = information(thinned(rows, width), covariance)
        assert np.trace(together) >= np.trace(even) * (1 - 1e-6) - 1e-9


def test_time_alone_narrows_the_factors_of_what_ran_together() -> None:
    case = known(3, FACTORS, together=True)
    model = Learner(case.series, (0,), calibrated(), 1_000_000).learn([case.batch], keep=True)
    features = entry_features(case.batch.entries, len(case.batch.lost_ns))
    for column in range(4):
        mine = features[case.batch.entries.group == column].sum(axis=0)
        per_ns = mine / mine[FEATURES.index("cpu_ns")]
        power = model["package"]
        (before, one_s), (_, ten_s) = (narrowed(power, 0, column, per_ns, s) for s in (1.0, 10.0))
        assert 0 < ten_s <= one_s <= before
        assert column > 0 or ten_s < 0.8 * before
    noises = [noise_of(50.0, 30.0, seconds) for seconds in (0.01, 0.1, 1.0, 10.0, 1e6)]
    assert noises == sorted(noises, reverse=True)
    assert noises[-1] == pytest.approx(0.25, rel=0.05), "longer is more certain, never certain"
