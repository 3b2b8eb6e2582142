# SPDX-License-Identifier: Apache-2.0
"""Every program of every server loads on the kernels of Debian's releases."""

from __future__ import annotations

from pathlib import Path

import pytest

from root.support.recording import Run as Queries
from vm.conftest import AGENT_TIMES
from vm.support.machine import Run
from vm.support.plans import Plan, plans
from vm.support.streams import recorded

pytestmark = pytest.mark.timeout(1800)


@pytest.mark.parametrize("plan", plans(reads=True), ids=lambda plan: plan.name)
def test_it_loads_and_attaches(loads_vm: Run, plan: Plan) -> None:
    release = loads_vm.text("release")
    reads = not release.startswith(("5.10.", "6.1."))
    if plan not in plans(reads=reads, early=release.startswith("5.10.")):
        pytest.skip("this kernel is without this rung")
    assert (loads_vm.out / f"{plan.name}.end").exists(), loads_vm.text(f"{plan.name}.err")[-4000:]


def test_requests_by_markers_are_counted(loads_vm: Run, tmp_path: Path) -> None:
    recorded(loads_vm, "agent").trace(tmp_path / "trace")
    queries = Queries(tmp_path / "trace")
    assert not queries.loss
    assert set(queries.queries["rung"]) == {"agent"}
    for marker, times in zip(("m_light", "m_heavy"), AGENT_TIMES, strict=True):
        assert int(queries.having(marker)["executions"].sum()) == times
