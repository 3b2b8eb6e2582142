# SPDX-License-Identifier: Apache-2.0
"""A study and its machine: rest, frequency, replications, and which server is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from fake_study import BASE, parse_plan
from qjoule.errors import QjouleError, UsageError
from qjoule.servers.types import Fact, Server
from qjoule_studies.cpufreq import CpuFrequency, hash_once, settle
from qjoule_studies.plan import Control, Plan, Running
from qjoule_studies.targets import running_target
from qjoule_studies.workload import Target


def test_it_settles_when_the_last_times_agree() -> None:
    times = iter([2.0, 1.5, 1.2, 1.1, 1.0, 1.0, 1.0, 1.0, 1.0])
    pauses: list[float] = []
    settled = settle(Control(tries=9, pause_s=3.0), lambda: next(times), pauses.append)
    assert settled.settled
    assert (settled.times, settled.deviation) == (9, 0.0)
    assert pauses == [3.0] * 8
    assert hash_once() > 0


def server(flavour: str, pid: int, port: int, socket: str = "") -> Server:
    no = Fact(False, "")
    path = Path("/usr/sbin/x")
    sockets = (socket,) if socket else ()
    return Server(
        1, flavour, "1", path, "x", (1, 1), (pid, pid + 1), (port,), sockets, no, thread_pool=no
    )


@pytest.fixture
def three_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = [
        server("mariadb", 10, 3306, "/run/m.sock"),
        server("mariadb", 20, 3307),
        server("ferretdb", 30, 27017),
    ]
    monkeypatch.setattr("qjoule.api.servers.find_servers", lambda: servers)


FIRST = Target("mariadb", 10, port=3306, socket="/run/m.sock")


@pytest.mark.usefixtures("three_servers")
@pytest.mark.parametrize(
    ("wanted", "target"),
    [
        (Running(pid=10), FIRST),
        (Running(port=3306), Target("mariadb", 10, port=3306)),
        (Running(flavour="mongodb"), Target("mongodb", 30, port=27017)),
    ],
)
def test_what_is_not_told_of_a_server_is_found(wanted: Running, target: Target) -> None:
    assert running_target(wanted, to_record=True) == target


@pytest.mark.usefixtures("three_servers")
@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (Running(flavour="mariadb"), r"several servers are flavour mariadb: .*pid 10\), .*pid 20"),
        (Running(flavour="redis"), "no running server is flavour redis"),
        (Running(flavour="redis", port=1, pid=2**22 + 5), "there is no process 4194309"),
    ],
)
def test_a_server_that_cannot_be_told_is_refused(wanted: Running, message: str) -> None:
    with pytest.raises(QjouleError, match=message):
        running_target(wanted, to_record=True)


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
    return parse_plan(BASE + f"factors = {{{factors}}}\n", "p.toml")


def test_what_is_set_is_put_back(cpus: CpuFrequency, tree: Path, tmp_path: Path) -> None:
    cpus.check(plan("size = [1, 2]"))
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
        cpus.check(plan("governor = ['turbo']"))
    with pytest.raises(UsageError, match="5000 MHz cannot be set: cpu0 has 800 to 3600 MHz"):
        cpus.check(plan("frequency_mhz = [5000]"))
    assert now(tree) == BEFORE
    with pytest.raises(QjouleError, match="governor cannot be set: this machine shows no cpufreq"):
        CpuFrequency(tmp_path / "saved", tmp_path).check(plan("governor = ['performance']"))
