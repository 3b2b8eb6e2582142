# SPDX-License-Identifier: Apache-2.0
"""The plans in examples/ can be read, use existing workloads and servers, and give designs."""

from __future__ import annotations

from pathlib import Path

import pytest

from qjoule.studies.plan_file import read_plan
from qjoule.studies.servers import STARTED
from qjoule.studies.workloads import workload

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize(
    "path", sorted(EXAMPLES.glob("*/*.yaml")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_a_plan(path: Path) -> None:
    plan = read_plan(path)
    known = workload(plan.workload).defaults
    assert set(plan.options) <= set(known)
    assert set(plan.servers) <= set(STARTED)
    options = [factor.name for factor in plan.factors if factor.name in known]
    machine = [factor.name for factor in plan.factors if factor.name not in known]
    assert options or machine
    for name in machine:
        assert name.partition(".")[0] in ("server", "governor", "frequency_mhz"), name
    assert all(len(factor.levels) == len(set(factor.levels)) for factor in plan.factors)


def test_the_plan_in_the_docs_is_one(tmp_path: Path) -> None:
    text = (EXAMPLES.parent / "attribution/src/qjoule/studies/README.md").read_text()
    path = tmp_path / "plan.yaml"
    path.write_text(text.split("```yaml\n")[1].split("```")[0])
    test_a_plan(path)
