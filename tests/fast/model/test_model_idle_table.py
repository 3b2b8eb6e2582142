# SPDX-License-Identifier: Apache-2.0
"""A kernel's table of idle states, as the belief about what lingers after a sleep."""

from __future__ import annotations

import numpy as np
import pytest

from power_cases import FACTORS, known
from qjoule.engine.accounts import idle_table
from qjoule.model.arrays import F64, TAILS_NS
from qjoule.model.coefficients import THETA, Coefficients
from qjoule.model.fit.learner import Learner
from qjoule.model.idle_table import IdleTable
from qjoule.trace.meta import EnergyInfo, IdleState, Meta

SKYLAKE = IdleTable((2_000, 20_000, 600_000), (2_000, 10_000, 133_000))
SHALLOW = IdleTable((2_000,), (2_000,))
TAILS = slice(2 + THETA.index("p0"), 2 + THETA.index("q4") + 1)
WAKES = slice(2 + THETA.index("wp"), 2 + THETA.index("wc") + 1)


@pytest.mark.parametrize("wrong", [((), ()), ((1,), ()), ((-1,), (1,)), ((1,), (-1,))])
def test_no_table(wrong: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    with pytest.raises(ValueError, match="table of idle states"):
        IdleTable(*wrong)


def meta(*states: IdleState, source: str = "powercap") -> Meta:
    return Meta(energy=EnergyInfo(source, "measured"), idle_states=states)


C1, C6 = IdleState("C1", 2, 2, cpus=4), IdleState("C6", 133, 600, cpus=4)


def sigmas(table: IdleTable | None) -> F64:
    """Standard errors of idle, shared and theta after windows without any tail."""
    case = known(1, FACTORS)
    model = Learner(case.series, (0,), Coefficients(), 1_000_000, table=table).learn(
        [case.batch], keep=True
    )["package"]
    return np.asarray(np.sqrt(np.diag(model.covariance)))


def test_what_no_window_tells_is_as_the_table_says() -> None:
    plain = sigmas(None)
    for table in (SKYLAKE, SHALLOW):
        found = sigmas(table) / plain
        assert found[TAILS] == pytest.approx(np.tile(table.tails, 2), rel=1e-3)
        assert found[WAKES] == pytest.approx(table.wake_ns / 20e3, rel=1e-3)


def test_tails_are_expected_as_long_as_the_states_reach() -> None:
    tails = SKYLAKE.tails
    assert len(tails) == len(TAILS_NS)
    assert (tails[:4] > 1.0).all(), "up to 0.8 ms, wider than without a table"
    assert tails[4] < 0.7, "1.6 ms is more than twice the deepest state's residency"
    assert (SHALLOW.tails <= 0.25).all()
    assert (SHALLOW.tails > 0).all(), "firmware may have states that the kernel does not know"
    assert IdleTable((5_000_000,), (400_000,)).tails.tolist() == [1.0] * len(TAILS_NS)
    assert (SKYLAKE.wake_ns, SHALLOW.wake_ns) == (133_000, 2_000), "leaving the deepest state"


POLL, OFF = IdleState("POLL", 0, 0, cpus=4), IdleState("C6", 133, 600, cpus=4, disabled=4)
PARTLY = IdleState("C6", 133, 600, cpus=4, disabled=3)


@pytest.mark.parametrize(
    ("idle_states", "source", "table"),
    [
        ((POLL, C1, C6), "powercap", IdleTable((0, 2_000, 600_000), (0, 2_000, 133_000))),
        ((C1, OFF), "powercap", IdleTable((2_000,), (2_000,))),
        ((C1, PARTLY), "powercap", IdleTable((2_000, 600_000), (2_000, 133_000))),
        ((), "powercap", None),
        ((POLL,), "powercap", None),  # polling is no sleep
        ((IdleState("C1", 2, None),), "powercap", None),
        ((IdleState("haltpoll", 1, 1, cpus=4),), "powercap", None),  # a guest
        ((C1, C6), "host", None),
    ],
)
def test_the_table_of_a_trace_has_the_states_in_use_on_real_cores(
    idle_states: tuple[IdleState, ...], source: str, table: IdleTable | None
) -> None:
    assert idle_table(meta(*idle_states, source=source)) == table
