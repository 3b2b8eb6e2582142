# SPDX-License-Identifier: Apache-2.0
"""The explanation of a row adds up to the row's energy, to the nJ."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import model_cases
from cli_runner import invoke
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
    explanation = watch.explained(totals(ledger, watch.groups, 0.0, estimated=False))
    assert explanation.energy_nj == int(ledger.domains[ledger.main].energy_nj[groups].sum())
    assert watch.energy_nj == explanation.energy_nj
    low, high = ledger.ci95()
    if len(groups) == 1:
        assert explanation.half_nj == pytest.approx(float(high[groups[0]] - low[groups[0]]) / 2)
    return explanation


@given(cases(), st.sets(st.integers(0, 5), min_size=1, max_size=2), st.booleans())
def test_parts_add_up_to_the_joules_to_the_nanojoule(
    case: Case, groups: set[int], refit: bool
) -> None:
    explanation = explained(case, sorted(groups), refit=refit)
    parts = (
        sum(explanation.dynamic_nj.values())
        + sum(explanation.shared_nj.values())
        + explanation.rest_nj
    )
    assert parts == explanation.energy_nj
    assert min([*explanation.dynamic_nj.values(), *explanation.shared_nj.values()]) >= 0
    assert 0 <= explanation.windows <= explanation.windows_all
    assert -1e-9 <= explanation.weight <= 1 + 1e-9
    assert set(explanation.remedies) <= set(REMEDIES)
    assert list(explanation.alone_nj.values()) == sorted(
        explanation.alone_nj.values(), reverse=True
    )


@given(cases(), st.integers(0, 5), st.booleans())
def test_nothing_that_becomes_known_widens_an_interval(case: Case, group: int, refit: bool) -> None:
    explanation = explained(case, [group], refit=refit)
    for left_nj in explanation.remedies.values():
        assert left_nj <= explanation.half_nj * (1 + 1e-6) + 1


run = partial(invoke, command)


@pytest.mark.parametrize("idle", ["separate", "even", "proportional"])
@pytest.mark.parametrize("name", ["mariadb-symbol", "postgres-socket", "redis-socket"])
def test_every_row_of_a_recorded_trace_can_be_explained(name: str, idle: str) -> None:
    trace = Trace(TRACES / name)
    request = AttributionRequest(idle=idle)  # type: ignore[arg-type]
    result = attribute(trace, idle=idle)  # type: ignore[arg-type]
    for row in result.rows:
        explanation = explain(trace, request, row)
        assert explanation.energy_nj == row.energy_nj
        low, high = row.energy_nj_ci95
        assert explanation.half_nj == pytest.approx((high - low) / 2, abs=2)
        assert explanation.cpu_ns == row.cpu_ns


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
    command_line = [
        str(TRACES / argument) if (TRACES / argument).is_dir() and argument else argument
        for argument in arguments
    ]
    result = run(*command_line, "--memory", "none")
    assert message in str(result.exception)
