# SPDX-License-Identifier: Apache-2.0
"""A package that sleeps while another one keeps it awake: whose its power is, and how it is
learned.
"""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import model_cases
from model_cases import Case, cases
from qjoule.model.account import Account, AccountSettings
from qjoule.model.arrays import EFFECTS, F64, Entries
from qjoule.model.coefficients import THETA, Coefficients, PowerInterval
from qjoule.model.fit import learner
from qjoule.model.fit.averaged import Prior
from qjoule.model.fit.beliefs import belief_of
from qjoule.model.idle_table import IdleTable
from qjoule.model.kept_awake import kept_on_average, with_kept
from qjoule.model.ledger import Ledger

KEPT = EFFECTS.index("kept_awake")
MS = 1_000_000
REST_W, SHARED_W, KEPT_W, BUSY_W = 30.0, 25.0, 20.0, 6.0


def shuffled(entries: Entries, groups: list[int]) -> Entries:
    """The entries with other numbers of groups, in the order that entries have."""
    group = np.array(groups)[entries.group]
    order = np.lexsort((group, entries.package, entries.window))
    columns = {field.name: getattr(entries, field.name)[order] for field in fields(Entries)}
    return Entries(**{**columns, "group": group[order]})


@given(cases(), st.permutations(range(6)))
def test_all_time_kept_awake_has_owners_whatever_their_numbers(
    case: Case, numbers: list[int]
) -> None:
    for batch in model_cases.run(case).batches:
        entries, shape = batch.entries, batch.active_ns.shape
        key = [entries.window, entries.package, entries.group]
        assert np.array_equal(np.lexsort(key[::-1]), np.arange(len(entries.window)))
        kept_ns = np.zeros(shape)
        np.add.at(kept_ns, (entries.window, entries.package), entries.effects[:, KEPT])
        dt_ns = np.diff(batch.energy.boundaries_ns)[:, None]
        others_ns = batch.active_ns.sum(axis=1, keepdims=True) - batch.active_ns
        assert (kept_ns <= (dt_ns - batch.active_ns) * (1 + 1e-9)).all()
        assert (kept_ns <= others_ns * (1 + 1e-9)).all()
        assert (kept_ns >= others_ns - batch.active_ns - 1e-6 * dt_ns).all() or shape[1] > 2
        # Other numbers of groups give the same times to the same owners.
        bare = entries.effects.copy()
        bare[:, KEPT] = 0.0
        plain = Entries(**{**vars(entries), "effects": bare}).take(
            (entries.cpu_ns > 0) | bare.any(axis=1)
        )
        again = with_kept(shuffled(plain, numbers), np.rint(kept_ns).astype(np.int64))
        expected = shuffled(entries, numbers)
        assert again.group.tolist() == expected.group.tolist()
        assert np.allclose(again.effects, expected.effects, rtol=1e-6, atol=1.0)


def test_packages_that_wake_independently_are_kept_for_the_product_of_their_times() -> None:
    active = np.array([[50, 20, 0], [100, 0, 0], [0, 0, 0]]) * MS
    kept_ms = kept_on_average(active, np.full(3, 100 * MS)) // MS
    assert kept_ms.tolist() == [[10, 40, 60], [0, 100, 100], [0, 0, 0]]


def two_sockets(seed: int, windows: int, *, second: float = 0.02) -> tuple[Case, F64]:
    """A machine of two sockets with two cores each, and the joules of its six owners.

    Owners 0 to 2 run on the first socket in some windows, 3 to 5 on the second in few. Each socket
    draws its shared power while it is awake, and most of that while only the other one is.
    """
    random = np.random.default_rng(seed)
    length = 20 * MS
    rows, truth = [], np.zeros(6)
    energy = np.full((2, windows), REST_W * length)
    for window in range(windows):
        busy = [0, 0]
        for socket, chance in ((0, 0.6), (1, second)):
            if random.random() < chance:
                owner = int(random.integers(3)) + 3 * socket
                ns = int(random.integers(2 * MS, 18 * MS))
                rows.append((window * length, window * length + ns, 2 * socket, owner))
                power = SHARED_W + BUSY_W * (1.0 + 0.2 * (owner % 3))
                energy[socket, window] += power * ns
                truth[owner] += power * ns
                busy[socket] = ns
        for socket in (0, 1):
            kept_ns = max(busy[1 - socket] - busy[socket], 0)
            energy[socket, window] += KEPT_W * kept_ns
            if kept_ns:
                mine = [row for row in rows[-2:] if row[0] == window * length]
                truth[next(row[3] for row in mine if row[2] != 2 * socket)] += KEPT_W * kept_ns
    bounds = [n * length for n in range(windows + 1)]
    counted = {(p, "package"): np.rint(energy[p]).astype(np.int64).tolist() for p in (0, 1)}
    machine = model_cases.machine(0, 0, 1, 1)
    energies = model_cases.energy(bounds, counted)
    case = Case(machine, energies, model_cases.segments(rows), (), Coefficients(), "separate")
    return case, truth


def divided(case: Case, coefficients: Coefficients, *, refit: bool) -> Ledger:
    case = Case(case.machine, case.energy, case.segments, (), coefficients, "separate")
    return model_cases.run(case, refit=refit).ledger


def test_who_keeps_a_package_awake_pays_for_it_on_whichever_package_he_runs() -> None:
    case, truth = two_sockets(1, 400)
    idle = {(p, "package"): PowerInterval(REST_W, REST_W - 0.3, REST_W + 0.3) for p in (0, 1)}
    shared = dict.fromkeys(idle, SHARED_W)
    coefficients = Coefficients(
        idle_w=idle, shared_w=shared, a=0.0, t=BUSY_W, kept=KEPT_W, calibrated=True
    )
    ledger = divided(case, coefficients, refit=False)
    sums = ledger.domains["package"]
    assert np.abs(sums.energy_nj - truth).sum() < 0.04 * truth.sum()
    parts = int(sums.energy_nj.sum()) + sums.idle_nj + sums.residual_nj
    assert parts == sums.measured_nj == int(case.energy.energy_nj.sum())
    assert (sums.energy_nj >= 0).all()
    # Without the term, whoever happens to run on the second socket pays for what it draws.
    blind = Coefficients(idle_w=idle, shared_w=shared, a=0.0, t=BUSY_W, calibrated=True)
    wrong = divided(case, blind, refit=False).domains["package"].energy_nj
    assert np.abs(wrong - truth).sum() > 0.15 * truth.sum()


def test_windows_tell_what_a_package_draws_that_another_one_keeps_awake() -> None:
    case, truth = two_sockets(2, 1500)
    ledger = divided(case, Coefficients(), refit=True)
    kept_w = ledger.models["package"].theta[THETA.index("kept")]
    assert abs(kept_w - KEPT_W) < 2.0
    low, high = ledger.ci95()
    assert ((low <= truth) & (truth <= high)).all()
    assert np.abs(ledger.domains["package"].energy_nj - truth).sum() < 0.04 * truth.sum()


def never_at_rest(seed: int, windows: int = 400) -> tuple[Case, F64]:
    """One socket that hardly ever sleeps keeps another one awake, on which nothing runs; and the
    joules of its three owners. Shared power is 57 % of what the socket draws while it is awake."""
    random = np.random.default_rng(seed)
    length, rows = 20 * MS, []
    rest_w, shared_w, kept_w = 15.0, 30.0, 28.0
    truth, energy = np.zeros(3), np.full((2, windows), rest_w * length)
    for window in range(windows):
        owner, ns = int(random.integers(3)), int(random.integers(17 * MS, 20 * MS))
        rows.append((window * length, window * length + ns, 0, owner))
        power = shared_w + BUSY_W * (1.0 + 0.2 * owner)
        energy[:, window] += np.array([power, kept_w]) * ns
        truth[owner] += (power + kept_w) * ns
    bounds = [n * length for n in range(windows + 1)]
    counted = {(p, "package"): np.rint(energy[p]).astype(np.int64).tolist() for p in (0, 1)}
    machine, energies = model_cases.machine(0, 0, 1, 1), model_cases.energy(bounds, counted)
    segments = model_cases.segments(rows)
    return Case(machine, energies, segments, (), Coefficients(), "separate"), truth


def learned(case: Case) -> Ledger:
    """Of a machine whose cores have one idle state, so that nothing lingers after a sleep."""
    table = IdleTable((2_000,), (2_000,))
    settings = AccountSettings(case.energy.series, (0, 1), Coefficients(), table=table)
    account = Account(settings)
    for batch in model_cases.run(case).batches:
        account.add(batch)
    return account.finish()


def without_unaided(*args: object, **options: object) -> Prior:
    return replace(belief_of(*args, **options), unaided=None)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(3))
def test_intervals_contain_what_nothing_but_a_machine_that_never_rests_could_tell(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, truth = never_at_rest(seed)
    ledger = learned(case)
    low, high = ledger.ci95()
    assert ((low <= truth) & (truth <= high)).all()
    # The wider prior is for intervals alone, and these reach further in every direction.
    monkeypatch.setattr(learner, "belief_of", without_unaided)
    narrow = learned(case)
    package, narrow_package = (one.domains["package"] for one in (ledger, narrow))
    assert np.array_equal(package.energy_nj, narrow_package.energy_nj)
    narrow_low, narrow_high = narrow.ci95()
    assert (low <= narrow_low).all()
    assert (high > narrow_high).all()
