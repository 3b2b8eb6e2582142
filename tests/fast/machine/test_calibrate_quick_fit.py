# SPDX-License-Identifier: Apache-2.0
"""What a quick calibration beside a running load finds, on simulated machines."""

from __future__ import annotations

from functools import cache, partial
from random import Random

import numpy as np
import pytest
from studies.bench.accuracy.harness import (
    attribute,
    calibrated,
    meta_of,
    phases_and_windows,
    shape_error,
)
from studies.bench.accuracy.machine import Topology
from studies.bench.accuracy.quick_run import cpu_info, own_groups, quick_calibrate
from studies.bench.accuracy.recording import Case
from studies.bench.accuracy.scenarios import make_case

from qjoule.engine.accounts import idle_table
from qjoule.errors import QjouleError
from qjoule.machine.quick_steps import LOAD_S, REST_S, SETTLE_S, Use, loaded_cores, plan_quick
from qjoule.machine.steps import IDLE, KERNELS, WAKEUP_RATES, wakeup_rate
from qjoule.model.coefficients import Coefficients
from qjoule.model.fit.known_loads import CalibrationFit, Surroundings, fit_calibration

SCENARIO, SEED, FOREIGN = "noisy_neighbours", 2, 0.3


@cache
def cases() -> tuple[Case, Case]:
    """The same machine, calibrated while idle, and by a quick run beside 30 % of other load."""
    quick = make_case(SCENARIO, SEED, partial(quick_calibrate, foreign=FOREIGN))
    return make_case(SCENARIO, SEED), quick


def fit(quick: Case, known: Coefficients) -> CalibrationFit:
    """A quick run's calibration, on a machine of which `known` was known before."""
    assert quick.calibration is not None
    table = idle_table(meta_of(quick.calibration))
    around = Surroundings(own_groups(quick.calibration), known, idle_table=table)
    return fit_calibration(*phases_and_windows(quick), around)


def error(case: Case, coefficients: Coefficients) -> float:
    ledger = attribute(case.recording, coefficients, refit=True)
    ledger.grow(len(case.recording.groups))
    return shape_error(case, ledger.domains["package"].energy_nj.astype(np.float64))


def test_it_is_nearly_as_good_as_a_full_one_and_refines_it() -> None:
    case, quick = cases()
    known = calibrated(case)
    alone, refined = fit(quick, Coefficients()), fit(quick, known)
    found = error(case, alone.coefficients)
    assert found < 0.5 * error(case, Coefficients())
    assert found < error(case, known) + 0.015
    assert error(case, refined.coefficients) < 0.03
    before, after = (one.idle_w[0, "package"] for one in (known, refined.coefficients))
    assert after.sigma_w <= 1.05 * before.sigma_w + 0.02 * before.value_w
    assert not alone.notes
    assert [note for note in refined.notes if "refined" in note and "package" in note]


# ---- the plan ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cores", "threads", "busy", "allowed"),
    [
        *((4, 1, 0.0, 2), (4, 1, 0.5, 1), (8, 1, 0.25, 3), (64, 2, 0.1, 26)),
        *((1, 1, 0.0, 0), (4, 1, 0.9, 0)),
    ],
)
def test_at_most_half_of_the_idle_cores(
    cores: int, threads: int, busy: float, allowed: int
) -> None:
    info = cpu_info(Topology(1, cores, threads))
    use = Use({cpu.cpu: busy for cpu in info.cpus})
    if not allowed:
        with pytest.raises(QjouleError, match=r"cores are idle"):
            loaded_cores(info, use)
        return
    assert len(loaded_cores(info, use)) == allowed
    assert len(loaded_cores(info, use, 1)) == 1
    use = Use({0: 0.9, 1: 0.05, 2: 0.8, 3: 0.0, 5: 0.0, 7: 0.3})
    assert loaded_cores(cpu_info(Topology(1, 4, 2)), use) == [(1, 5)], "the quietest"


@pytest.mark.parametrize("topology", [Topology(1, 2, 1), Topology(2, 16, 2)])
@pytest.mark.parametrize("seconds", [60.0, 20.0])
def test_every_load_is_beside_rests(topology: Topology, seconds: float) -> None:
    info = cpu_info(topology)
    cores = loaded_cores(info, Use({cpu.cpu: 0.1 for cpu in info.cpus}))
    steps = plan_quick(info, cores, seconds, Random(1))
    assert steps == plan_quick(info, cores, seconds, Random(1))
    assert topology.cores == 2 or steps != plan_quick(info, cores, seconds, Random(2))
    assert sum(step.seconds + SETTLE_S for step in steps) <= seconds
    assert {step.kernel for step in steps[::2]} == {IDLE}
    loads = steps[1::2]
    assert IDLE not in {step.kernel for step in loads}
    assert {step.seconds for step in steps} == {LOAD_S, REST_S}
    if seconds == 60.0:
        assert set(KERNELS) < {step.kernel for step in loads}
        assert {wakeup_rate(step.kernel) for step in loads} == {None, *WAKEUP_RATES}
    allowed = {cpu for core in cores for cpu in core}
    for step in loads:
        assert {*step.cpus, *step.beside} <= allowed
        assert not {*step.cpus} & {*step.beside}
