# SPDX-License-Identifier: Apache-2.0
"""Which of the running servers a plan refers to."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from qjoule.errors import QjouleError
from qjoule.servers.types import Fact, Server
from qjoule.studies import targets
from qjoule.studies.plan import Running
from qjoule.studies.targets import life, running_target
from qjoule.studies.workload import Target


def server(flavour: str, pid: int, port: int, socket: str = "") -> Server:
    no = Fact(False, "")
    path = Path("/usr/sbin/x")
    sockets = (socket,) if socket else ()
    return Server(
        1, flavour, "1", path, "x", (1, 1), (pid, pid + 1), (port,), sockets, no, thread_pool=no
    )


@pytest.fixture(autouse=True)
def servers(monkeypatch: pytest.MonkeyPatch) -> list[Server]:
    found = [
        server("mariadb", 10, 3306, "/run/m.sock"),
        server("mariadb", 20, 3307),
        server("ferretdb", 30, 27017),
    ]
    monkeypatch.setattr("qjoule.servers.discovery.find_servers", lambda: found)
    return found


@pytest.mark.parametrize(
    ("wanted", "target"),
    [
        (Running(pid=10), Target("mariadb", 10, port=3306, socket="/run/m.sock")),
        (Running(pid=11), Target("mariadb", 10, port=3306, socket="/run/m.sock")),
        (Running(port=3307), Target("mariadb", 20, port=3307)),
        (Running(port=3306), Target("mariadb", 10, port=3306)),
        (Running(socket="/run/m.sock"), Target("mariadb", 10, port=3306, socket="/run/m.sock")),
        (Running(flavour="mongodb"), Target("mongodb", 30, port=27017)),
    ],
)
def test_what_is_not_told_is_found(wanted: Running, target: Target) -> None:
    assert running_target(wanted, to_record=True) == target


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
def test_a_server_that_is_not_one_is_refused(wanted: Running, words: str) -> None:
    with pytest.raises(QjouleError, match=words):
        running_target(wanted, to_record=True)


def test_where_nothing_is_recorded_any_host_will_do() -> None:
    wanted = Running(flavour="redis", port=1, host="192.0.2.1")
    assert running_target(wanted, to_record=False) == Target("redis", host="192.0.2.1", port=1)
    with pytest.raises(QjouleError, match=r"say what runs on 192\.0\.2\.1"):
        running_target(Running(port=1, host="192.0.2.1"), to_record=False)


def test_the_password_is_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP", "secret")
    target = running_target(Running(pid=10, password_env="SHOP", user="me"), to_record=True)
    assert (target.user, target.password) == ("me", "secret")


def test_life_ends_with_the_process_and_a_zombie_has_none() -> None:
    assert not life(os.getpid()).ended
    assert not life(0).ended
    process = subprocess.Popen(["sleep", "600"])
    begun = life(process.pid)
    assert not begun.ended
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert begun.ended  # a zombie
    process.wait()
    assert begun.ended


def test_a_later_process_of_the_same_number_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = life(os.getpid())
    monkeypatch.setattr(targets, "_started", lambda _pid: "12345")
    assert begun.ended
