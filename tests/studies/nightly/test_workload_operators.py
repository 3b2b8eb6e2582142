# SPDX-License-Identifier: Apache-2.0
"""The workload `operators` on a real PostgreSQL: each operator is planned, checked and executed."""

from __future__ import annotations

import pytest

from qjoule.errors import QjouleError, UsageError
from qjoule.studies.workload import Target, Value
from qjoule.studies.workloads.operator_plans import OPERATORS
from qjoule.studies.workloads.operators import Operators
from servers.process import DatabaseServer

pytestmark = [pytest.mark.beside, pytest.mark.server]
SMALL: dict[str, Value] = {
    **Operators.defaults,
    "rows": 20_000,
    "build_rows": 2_000,
    "groups": 50,
    "operations": 2,
}


def target_of(server: DatabaseServer) -> Target:
    return Target("postgres", server.pid, port=server.port, socket=str(server.socket))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("operator", OPERATORS)
def test_each_operator_has_its_plan(postgres: DatabaseServer, operator: str, workers: int) -> None:
    options = {**SMALL, "operator": operator, "parallel_workers": workers}
    target = target_of(postgres)
    Operators().prepare(target, options)
    outcome = Operators().run(target, options)
    assert (outcome.operations, outcome.errors) == (2, 0)
    assert outcome.commands[operator].operations == 2
    assert any(f"{workers} of {workers} workers launched" in note for note in outcome.notes)


def test_a_plan_that_is_another_operators_is_refused(postgres: DatabaseServer) -> None:
    options = {
        **SMALL,
        "operator": "hash join",
        "settings": "enable_hashjoin=off; enable_mergejoin=on",
    }
    with pytest.raises(QjouleError, match=r"did not plan a Hash Join.* but .*Merge Join"):
        Operators().prepare(target_of(postgres), options)


def test_fewer_workers_than_asked_for_are_refused(postgres: DatabaseServer) -> None:
    options = {**SMALL, "parallel_workers": 2, "settings": "max_parallel_workers_per_gather=1"}
    with pytest.raises(QjouleError, match=r"with 2 workers but .*Gather\[1\]"):
        Operators().prepare(target_of(postgres), options)


def test_workers_that_cannot_start_are_in_the_notes(postgres: DatabaseServer) -> None:
    options = {**SMALL, "parallel_workers": 2, "settings": "max_parallel_workers=0"}
    Operators().prepare(target_of(postgres), options)
    assert "0 of 2 workers launched" in " ".join(
        Operators().run(target_of(postgres), options).notes
    )


def test_settings_that_the_server_does_not_know(postgres: DatabaseServer) -> None:
    with pytest.raises(UsageError, match="setting nonsense"):
        Operators().prepare(target_of(postgres), {**SMALL, "settings": "nonsense=1"})


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(QjouleError, match="cannot connect to postgres"):
        Operators().prepare(Target("postgres", host="127.0.0.1", port=1), SMALL)
