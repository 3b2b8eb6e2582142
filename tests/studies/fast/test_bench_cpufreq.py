# SPDX-License-Identifier: Apache-2.0
"""Governor and frequency, on a tree of files like sysfs."""

from __future__ import annotations

from pathlib import Path

import pytest

from fake_study import BASE, Fake
from qjoule.errors import QjouleError, UsageError
from qjoule.studies.client import Job
from qjoule.studies.cpufreq import CpuFrequency
from qjoule.studies.plan import Plan
from qjoule.studies.plan_file import parse_plan
from qjoule.studies.recording import RunFailed
from qjoule.studies.workload import Outcome

FILES = {
    "scaling_governor": "powersave",
    "scaling_available_governors": "performance powersave",
    "scaling_min_freq": "800000",
    "scaling_max_freq": "3600000",
    "cpuinfo_min_freq": "800000",
    "cpuinfo_max_freq": "3600000",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for cpu in (0, 1):
        policy = tmp_path / "sys" / f"cpu{cpu}" / "cpufreq"
        policy.mkdir(parents=True)
        for name, value in FILES.items():
            (policy / name).write_text(value + "\n")
    return tmp_path / "sys"


@pytest.fixture
def cpus(tree: Path, tmp_path: Path) -> CpuFrequency:
    return CpuFrequency(tmp_path / "cpufreq.json", tree)


def now(tree: Path) -> set[tuple[str, ...]]:
    files = ("scaling_governor", "scaling_min_freq", "scaling_max_freq")
    policies = tree.glob("cpu*/cpufreq")
    return {tuple((policy / file).read_text().strip() for file in files) for policy in policies}


BEFORE = {("powersave", "800000", "3600000")}


def plan(factors: str) -> Plan:
    return parse_plan(BASE + f"factors: {factors}\n", "p.yaml")


def test_what_is_set_is_put_back(cpus: CpuFrequency, tree: Path, tmp_path: Path) -> None:
    cpus.check(plan("{size: [1, 2]}"))
    cpus.set({"size": 1})
    assert not (tmp_path / "cpufreq.json").exists(), "no such factor"
    cpus.set({"governor": "performance", "frequency_mhz": 2400, "size": 3})
    assert now(tree) == {("performance", "2400000", "2400000")}
    cpus.set({"governor": "performance", "frequency_mhz": 1200.5})
    assert now(tree) == {("performance", "1200500", "1200500")}
    cpus.set({"governor": "powersave", "frequency_mhz": 3600})
    cpus.restore()
    assert now(tree) == BEFORE
    assert not (tmp_path / "cpufreq.json").exists()


def test_what_a_killed_study_left_is_put_back_by_the_next(tree: Path, tmp_path: Path) -> None:
    saved = tmp_path / "cpufreq.json"
    CpuFrequency(saved, tree).set({"governor": "performance"})
    CpuFrequency(saved, tree).set({"frequency_mhz": 1000})  # which saves nothing anew
    CpuFrequency(saved, tree).restore_from_before()
    assert now(tree) == BEFORE


def test_levels_that_are_not_there_are_refused(
    cpus: CpuFrequency, tree: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="there is no governor 'turbo'"):
        cpus.check(plan("{governor: [turbo]}"))
    with pytest.raises(UsageError, match="5000 MHz cannot be set: cpu0 has 800 to 3600 MHz"):
        cpus.check(plan("{frequency_mhz: [5000]}"))
    for policy in tree.glob("cpu*/cpufreq"):
        (policy / "scaling_available_frequencies").write_text("3600000 2100000 800000\n")
    cpus.check(plan("{frequency_mhz: [800, 2100]}"))
    with pytest.raises(UsageError, match="cpu0 has 800, 2100, 3600 MHz"):
        cpus.check(plan("{frequency_mhz: [800, 2000]}"))
    assert now(tree) == BEFORE
    with pytest.raises(QjouleError, match="governor cannot be set: this machine shows no cpufreq"):
        CpuFrequency(tmp_path / "saved", tmp_path).check(plan("{governor: [performance]}"))


def test_a_kernel_that_does_not_take_it_is_noticed(
    cpus: CpuFrequency, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "write_text", lambda _self, text: len(text))
    with pytest.raises(QjouleError, match="to performance: it stays powersave"):
        cpus.set({"governor": "performance"})


def test_runs_see_their_level_and_failures_put_it_back(tree: Path, tmp_path: Path) -> None:
    fake = Fake(tmp_path / "study")
    fake.cpus = CpuFrequency(tmp_path / "study" / "cpufreq.json", tree)
    seen: list[set[tuple[str, ...]]] = []

    def look(number: int, job: Job) -> Outcome:  # noqa: ARG001
        seen.append(now(tree))
        raise RunFailed("no")

    fake.client = look
    with pytest.raises(QjouleError, match="in a row"):
        fake.study(BASE + "factors: {governor: [performance, powersave]}\nreplications: 2\n")
    levels = [run["factors"]["governor"] for run in fake.runs]
    assert seen == [{(str(level), "800000", "3600000")} for level in levels]
    fake.cpus.restore()
    assert now(tree) == BEFORE
