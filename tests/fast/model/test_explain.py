# SPDX-License-Identifier: Apache-2.0
"""The explanation of a row: what it says is what was computed, to the nJ."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

import model_cases
from model_cases import Case, cases
from qjoule.commands.attribute import command
from qjoule.engine.accounts import divided
from qjoule.engine.attribute import AttributionRequest, attribute
from qjoule.engine.explain import explain, totals
from qjoule.model.explain import REMEDIES, Explanation, RowWatch
from qjoule.model.windows import SegmentWindows
from qjoule.trace.reader import Trace

TRACES = Path(__file__).parents[1] / "golden" / "traces"


def explained(case: Case, groups: list[int], *, refit: bool) -> Explanation:
    watch = RowWatch(np.array(groups, np.int64))
    series, packages = case.energy.series, case.machine.packages
    account = model_cases.account(
        series, packages, case.coefficients, case.idle, refit=refit, watch=watch
    )
    stream = SegmentWindows(case.machine, case.energy, case.lost)
    ledger = divided(account, stream, [case.segments])
    ledger.grow(6)
    found = watch.explained(totals(ledger, watch.groups, 0.0, estimated=False))
    assert found.energy_nj == int(ledger.domains[ledger.main].energy_nj[groups].sum())
    assert watch.energy_nj == found.energy_nj
    low, high = ledger.ci95()
    if len(groups) == 1:
        assert found.half_nj == pytest.approx(float(high[groups[0]] - low[groups[0]]) / 2)
    return found


@given(cases(), st.sets(st.integers(0, 5), min_size=1, max_size=2), st.booleans())
def test_parts_add_up_to_the_joules_to_the_nanojoule(
    case: Case, groups: set[int], refit: bool
) -> None:
    found = explained(case, sorted(groups), refit=refit)
    parts = sum(found.dynamic_nj.values()) + sum(found.shared_nj.values()) + found.rest_nj
    assert parts == found.energy_nj
    assert min([*found.dynamic_nj.values(), *found.shared_nj.values()]) >= 0
    assert 0 <= found.windows <= found.windows_all
    assert -1e-9 <= found.weight <= 1 + 1e-9
    assert set(found.remedies) <= set(REMEDIES)
    assert list(found.alone_nj.values()) == sorted(found.alone_nj.values(), reverse=True)


@given(cases(), st.integers(0, 5), st.booleans())
def test_nothing_that_becomes_known_widens_an_interval(case: Case, group: int, refit: bool) -> None:
    found = explained(case, [group], refit=refit)
    for left_nj in found.remedies.values():
        assert left_nj <= found.half_nj * (1 + 1e-6) + 1


def run(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


@pytest.mark.parametrize("idle", ["separate", "even", "proportional"])
@pytest.mark.parametrize("name", ["mariadb-symbol", "postgres-socket", "redis-socket"])
def test_every_row_of_a_recorded_trace_can_be_explained(name: str, idle: str) -> None:
    trace = Trace(TRACES / name)
    request = AttributionRequest(idle=idle)  # type: ignore[arg-type]
    result = attribute(trace, idle=idle)  # type: ignore[arg-type]
    for row in result.rows:
        found = explain(trace, request, row)
        assert found.energy_nj == row.energy_nj
        low, high = row.energy_nj_ci95
        assert found.half_nj == pytest.approx((high - low) / 2, abs=2)
        assert found.cpu_ns == row.cpu_ns


def test_a_row_is_found_by_its_number_or_its_fingerprint() -> None:
    trace = TRACES / "mariadb-symbol"
    options = (trace, "--memory", "none", "--explain")
    first = attribute(Trace(trace)).rows[0]
    by_number = run(*options, 1)
    assert by_number.exit_code == 0, by_number.output
    assert by_number.output == run(*options, first.keys["fingerprint"][:9]).output
    names = ("share", "ran", "joules", "by weight", "shared", "factor", "interval", "best help")
    for name in ("row 1", *names):
        assert re.search(rf"^{name} ", by_number.output, re.MULTILINE), name
    assert first.shape[:30] in by_number.output
    assert len(by_number.output.splitlines()) <= 15


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mariadb-symbol", "--explain", "999"), "no row '999'"),
        (("mariadb-symbol", "--explain", "x"), "no row 'x'"),
        (("mariadb-symbol", "--explain", ""), "rows ''"),
        (("mariadb-symbol", "--explain", "1", "--format", "json"), "leave out --format"),
        (("mariadb-symbol", "redis-socket", "--explain", "1"), "of one trace"),
        (("ferretdb-statistical", "--explain", "1"), "regression on counted requests"),
    ],
)
def test_what_cannot_be_explained_is_said(arguments: tuple[str, ...], message: str) -> None:
    words = [str(TRACES / one) if (TRACES / one).is_dir() and one else one for one in arguments]
    result = run(*words, "--memory", "none")
    assert message in str(result.exception)
