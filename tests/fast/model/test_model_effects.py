# SPDX-License-Identifier: Apache-2.0
"""What owners cause besides running, and what a table of idle states tells of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from power_cases import WINDOW_NS, Known, calibrated, known, learned, with_energy
from qjoule.engine.accounts import idle_table
from qjoule.model.arrays import EFFECTS, F64, real_sums
from qjoule.model.coefficients import IdleTable
from qjoule.model.ledger import Ledger
from qjoule.trace.meta import EnergyInfo, IdleState, Meta

FACTORS = (1.1, 0.92, 1.0, 1.1)


def with_effect(case: Known, names: tuple[str, ...], amount: F64, cost: float) -> Known:
    """The case in which each entry also causes `amount` (m,) of each effect, at `cost` nJ each for
    the last of them."""
    entries = case.batch.entries
    effects = entries.effects.copy()
    for name in names:
        effects[:, EFFECTS.index(name)] = amount
    each_nj = cost * amount
    energy = case.batch.energy
    more = np.rint(real_sums(entries.window, each_nj, energy.energy_nj.shape[1])).astype(np.int64)
    batch = replace(
        case.batch,
        entries=replace(entries, effects=effects),
        energy=replace(energy, energy_nj=energy.energy_nj + more),
    )
    truth = case.energy_nj + real_sums(entries.group, each_nj, len(case.energy_nj))
    return replace(case, batch=batch, energy_nj=truth)


def tails_ns(case: Known, seed: int) -> F64:
    """Idle time after each entry, mostly after those of group 0: it sleeps often."""
    entries = case.batch.entries
    often = np.where(entries.group == 0, 0.15, 0.01)
    drawn = np.random.default_rng(seed).uniform(0.5, 1.5, len(entries.window))
    return np.asarray(often * drawn * WINDOW_NS)


def error(ledger: Ledger, case: Known) -> F64:
    return np.abs(ledger.domains["package"].energy_nj / case.energy_nj - 1.0)


def covered(ledger: Ledger, case: Known) -> bool:
    low, high = ledger.ci95()
    return bool(((low <= case.energy_nj) & (case.energy_nj <= high)).all())


def test_the_owner_whose_sleep_began_a_tail_pays_for_it() -> None:
    plain = known(20, FACTORS, windows=3000)
    names = ("package_tail_800us", "package_tail_1600us")
    case = with_effect(plain, names, tails_ns(plain, 1), 12.0)
    ledger = learned(case, calibrated())
    assert error(ledger, case).max() < 0.08
    assert covered(ledger, case)
    entries = replace(case.batch.entries, effects=plain.batch.entries.effects)
    without = replace(case.batch, entries=entries)
    blind = learned(replace(case, batch=without), calibrated())
    assert error(blind, case)[0] > 2 * error(ledger, case)[0]
    # A tail of the package is drawn once, whoever slept.
    shared = ledger.domains["package"].shared_nj - blind.domains["package"].shared_nj
    assert shared[0] > 5 * max(int(shared[1]), 1)


def test_power_that_no_term_explains_widens_every_interval_and_is_said() -> None:
    plain = known(24, (1.0, 1.0, 1.0, 1.0), windows=4000)
    entries, energy = plain.batch.entries, plain.batch.energy
    mine = entries.group == 0
    share = real_sums(entries.window[mine], entries.cpu_ns[mine], energy.energy_nj.shape[1])
    strange = np.rint(1.2e9 * (share / WINDOW_NS) ** 4).astype(np.int64)
    odd = replace(plain, batch=with_energy(plain, energy.energy_nj + strange))
    strange_power, usual = learned(odd, calibrated()), learned(plain, calibrated())
    assert any("the model does not fit this machine" in note for note in strange_power.notes)
    assert not any("does not fit" in note for note in usual.notes)
    width = [np.subtract(*one.ci95()[::-1]).sum() for one in (strange_power, usual)]
    assert width[0] > 1.2 * width[1]


def meta(*states: IdleState, source: str = "powercap") -> Meta:
    return Meta(energy=EnergyInfo(source, "measured"), idle_states=states)


C1, C6 = IdleState("C1", 2, 2, cpus=4), IdleState("C6", 133, 600, cpus=4)


POLL, OFF = IdleState("POLL", 0, 0, cpus=4), IdleState("C6", 133, 600, cpus=4, disabled=4)
PARTLY = IdleState("C6", 133, 600, cpus=4, disabled=3)


@pytest.mark.parametrize(
    ("idle_states", "source", "table"),
    [
        ((POLL, C1, C6), "powercap", IdleTable((0, 2_000, 600_000), (0, 2_000, 133_000))),
        ((C1, OFF), "powercap", IdleTable((2_000,), (2_000,))),
        ((C1, PARTLY), "powercap", IdleTable((2_000, 600_000), (2_000, 133_000))),
        ((POLL,), "powercap", None),  # polling is no sleep
        ((IdleState("haltpoll", 1, 1, cpus=4),), "powercap", None),  # a guest
        ((C1, C6), "host", None),
    ],
)
def test_the_table_of_a_trace_has_the_states_in_use_on_real_cores(
    idle_states: tuple[IdleState, ...], source: str, table: IdleTable | None
) -> None:
    assert idle_table(meta(*idle_states, source=source)) == table
