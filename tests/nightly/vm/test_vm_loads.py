# SPDX-License-Identifier: Apache-2.0
"""Every program of every server loads on the kernels of Debian's releases."""

from __future__ import annotations

from pathlib import Path

import pytest

from nightly.vm.conftest import AGENT_TIMES
from nightly.vm.support.machine import Run
from nightly.vm.support.plans import Plan, plans
from nightly.vm.support.streams import recorded
from qjoule.machine.kernel_facts import read_kernel_facts
from tracing.recording import Run as Queries

pytestmark = pytest.mark.timeout(1800)


@pytest.mark.parametrize("plan", plans(reads=True), ids=lambda plan: plan.name)
def test_it_loads_and_attaches(loads_vm: Run, plan: Plan) -> None:
    release = loads_vm.text("release")
    early = release.startswith("5.10.")
    if plan not in plans(reads=not early, early=early):
        pytest.skip("this kernel is without this rung")
    assert (loads_vm.out / f"{plan.name}.end").exists(), loads_vm.text(f"{plan.name}.err")[-4000:]


def test_what_the_kernel_shows_is_known_beforehand(loads_vm: Run) -> None:
    early = loads_vm.text("release").startswith("5.10.")
    facts = read_kernel_facts(loads_vm.out / "facts")
    assert (facts.reads, facts.sends, facts.early) == (not early, not early, early)


def test_requests_by_markers_are_counted(loads_vm: Run, tmp_path: Path) -> None:
    recorded(loads_vm, "agent").trace(tmp_path / "trace")
    queries = Queries(tmp_path / "trace")
    assert not queries.loss
    assert set(queries.queries["rung"]) == {"agent"}
    for marker, times in zip(("m_light", "m_heavy"), AGENT_TIMES, strict=True):
        assert int(queries.having(marker)["executions"].sum()) == times
