# SPDX-License-Identifier: Apache-2.0
"""A study's directory: who owns it, and what it must contain."""

from __future__ import annotations

from pathlib import Path

import pytest

from fake_study import BASE, SIZES, Fake, outcome
from qjoule.errors import QjouleError
from qjoule.studies.client import Job
from qjoule.studies.plan_file import parse_plan
from qjoule.studies.workload import Outcome


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    return Fake(tmp_path / "study")


def test_another_plan_in_the_same_directory_is_refused(fake: Fake) -> None:
    fake.study(SIZES)
    with pytest.raises(QjouleError, match=r"another plan \(factors, design\)"):
        Fake(fake.directory).study(SIZES.replace("100", "1000") + "design: {seed: 2}\n")


def test_a_directory_of_something_else_is_refused(fake: Fake) -> None:
    fake.directory.mkdir()
    (fake.directory / "thesis.tex").touch()
    with pytest.raises(QjouleError, match="is not empty and holds no study"):
        fake.study(SIZES)


def test_two_at_once_in_one_directory_are_refused(fake: Fake) -> None:
    refused = []

    def other(number: int, job: Job) -> Outcome:  # noqa: ARG001
        with pytest.raises(QjouleError, match="another qjoule bench works in"):
            Fake(fake.directory).study(SIZES)
        refused.append(number)
        return outcome()

    fake.client = other
    fake.study(BASE + "replications: 1\n")
    assert refused == [1]


def test_a_damaged_table_is_said_with_its_line(fake: Fake) -> None:
    fake.study(SIZES)
    table = fake.directory / "runs.jsonl"
    lines = table.read_bytes().splitlines(keepends=True)
    table.write_bytes(lines[0] + b"{}\n" + lines[2])
    with pytest.raises(QjouleError, match=r"runs.jsonl, line 2: no run 2 is described here"):
        Fake(fake.directory).study(SIZES)


def test_the_plan_in_the_directory_is_the_study(fake: Fake) -> None:
    fake.study(SIZES)
    plan = parse_plan((fake.directory / "plan.yaml").read_text(), "plan.yaml")
    again = Fake(fake.directory)
    assert again.study(plan) == 0
    assert again.ran == 0
