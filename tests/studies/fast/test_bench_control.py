# SPDX-License-Identifier: Apache-2.0
"""When the machine counts as idle, how many runs an interval needs, and which server is meant."""

from __future__ import annotations

import math
import os
import subprocess
from pathlib import Path

import pytest

from qjoule.errors import QjouleError
from qjoule.servers.types import Fact, Server
from qjoule.studies import targets
from qjoule.studies.control import hash_once, settle
from qjoule.studies.plan import Control, Running
from qjoule.studies.schedule import relative_half_width
from qjoule.studies.targets import life, running_target
from qjoule.studies.workload import Target


def test_it_settles_when_the_last_times_agree() -> None:
    times = iter([2.0, 1.5, 1.2, 1.1, 1.0, 1.0, 1.0, 1.0, 1.0])
    pauses: list[float] = []
    found = settle(Control(tries=9, pause_s=3.0), lambda: next(times), pauses.append)
    assert found.settled
    assert (found.times, found.deviation) == (9, 0.0)
    assert pauses == [3.0] * 8
    assert hash_once() > 0


def test_times_that_differ_settle_only_within_the_plans_share() -> None:
    times = [1.0, 1.03] * 5
    given = iter(times)
    found = settle(Control(tries=10, pause_s=0), lambda: next(given))
    assert not found.settled
    # For 1.03, 1, 1.03, 1, 1.03, with n - 1 in the denominator.
    assert found.deviation == pytest.approx(0.016432 / 1.018, rel=1e-3)
    assert "1.6%" in found.words
    given = iter(times)
    assert settle(Control(within=0.02, pause_s=0), lambda: next(given)).times == 5


@pytest.mark.parametrize(
    ("values", "width"),
    [
        # Mean 5, s = 0.1, t(0.975, 2) = 4.302653.
        ([4.9, 5.1, 5.0], 4.302653 * 0.1 / 3**0.5 / 5),
        ([], math.inf),
        ([3.0], math.inf),
        ([2.0, 2.0], 0.0),
        ([0.0, 0.0], 0.0),
        ([-1, 1], math.inf),
    ],
)
def test_half_width_is_that_of_students_t(values: list[float], width: float) -> None:
    assert relative_half_width(values) == pytest.approx(width)


def server(flavour: str, pid: int, port: int, socket: str = "") -> Server:
    no = Fact(False, "")
    path = Path("/usr/sbin/x")
    sockets = (socket,) if socket else ()
    return Server(
        1, flavour, "1", path, "x", (1, 1), (pid, pid + 1), (port,), sockets, no, thread_pool=no
    )


@pytest.fixture
def three_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        server("mariadb", 10, 3306, "/run/m.sock"),
        server("mariadb", 20, 3307),
        server("ferretdb", 30, 27017),
    ]
    monkeypatch.setattr("qjoule.servers.discovery.find_servers", lambda: found)


FIRST = Target("mariadb", 10, port=3306, socket="/run/m.sock")


@pytest.mark.usefixtures("three_servers")
@pytest.mark.parametrize(
    ("wanted", "target"),
    [
        (Running(pid=10), FIRST),
        (Running(pid=11), FIRST),
        (Running(socket="/run/m.sock"), FIRST),
        (Running(port=3306), Target("mariadb", 10, port=3306)),
        (Running(port=3307), Target("mariadb", 20, port=3307)),
        (Running(flavour="mongodb"), Target("mongodb", 30, port=27017)),
    ],
)
def test_what_is_not_told_of_a_server_is_found(wanted: Running, target: Target) -> None:
    assert running_target(wanted, to_record=True) == target


@pytest.mark.usefixtures("three_servers")
@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (Running(flavour="mariadb"), r"several servers are flavour mariadb: .*pid 10\), .*pid 20"),
        (Running(flavour="redis"), "no running server is flavour redis"),
        (Running(pid=99), "no running server is process 99"),
        (Running(flavour="redis", port=1, pid=2**22 + 5), "there is no process 4194309"),
        (Running(flavour="redis", port=1, host="192.0.2.1"), "192.0.2.1 is another machine"),
    ],
)
def test_a_server_that_cannot_be_told_is_refused(wanted: Running, words: str) -> None:
    with pytest.raises(QjouleError, match=words):
        running_target(wanted, to_record=True)


def test_where_nothing_is_recorded_any_host_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """The password is the environment's."""
    monkeypatch.setenv("SHOP", "secret")
    wanted = Running(flavour="redis", port=1, host="192.0.2.1", password_env="SHOP")
    target = Target("redis", host="192.0.2.1", port=1, password="secret")
    assert running_target(wanted, to_record=False) == target
    with pytest.raises(QjouleError, match=r"say what runs on 192\.0\.2\.1"):
        running_target(Running(port=1, host="192.0.2.1"), to_record=False)


def test_life_ends_with_the_process_although_its_number_may_return(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = subprocess.Popen(["sleep", "600"])
    begun = life(process.pid)
    assert not begun.ended
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert begun.ended  # a zombie
    process.wait()
    assert begun.ended
    begun = life(os.getpid())
    assert not begun.ended
    monkeypatch.setattr(targets, "_started", lambda _pid: "12345")
    assert begun.ended
