# SPDX-License-Identifier: Apache-2.0
"""Servers with equal ports keep names of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qjoule.servers.place import place_of, told_apart
from qjoule.servers.types import Fact, Server

ID = "3f2a9c1b7d20" + "e" * 52
NO = Fact(False, "")


def server(pid: int, port: int = 6379, **fields: Any) -> Server:
    tgids, ports = ((pid,), (port,)) if pid else ((), ())
    one = Server(0, "redis", "7", Path("/r"), "/usr/bin/r", (1, 2), tgids, ports, (), NO, NO)
    return Server(**{**vars(one), **fields})


@pytest.mark.parametrize(
    ("text", "container", "unit"),
    [
        (f"0::/system.slice/docker-{ID}.scope\n", ID[:12], ""),
        (f"0::/docker/{ID}\n", ID[:12], ""),
        (f"12:cpu:/docker/{ID}\n1:name=systemd:/docker/{ID}\n", ID[:12], ""),
        (f"0::/kubepods.slice/kubepods-pod7.slice/cri-containerd-{ID}.scope", ID[:12], ""),
        (f"0::/machine.slice/libpod-{ID}.scope/container", ID[:12], ""),
        ("0::/lxc.payload.shop/system.slice/redis.service", "shop", "redis"),
        ("0::/machine.slice/machine-shop.scope", "shop", ""),
        ("0::/system.slice/system-redis.slice/redis@a.service", "", "redis@a"),
        ("0::/user.slice/user-0.slice/session-3.scope", "", ""),
        ("0::/", "", ""),
        ("", "", ""),
        (f"0::/x{ID}", "", ""),
    ],
)
def test_where_a_process_runs(text: str, container: str, unit: str) -> None:
    assert place_of(text) == (container, unit)


def labels(*servers: Server) -> list[str]:
    return [one.label for one in told_apart(servers)]


def test_names_that_are_unique_stay_short() -> None:
    assert labels(server(1), server(2, 6380, unit="b")) == ["redis:6379", "redis:6380"]


def test_a_container_is_always_in_the_name() -> None:
    assert labels(server(1, container="aaa")) == ["redis:6379@aaa"]
    both = labels(server(1, container="aaa"), server(2, container="bbb"), server(3))
    assert both == ["redis:6379@aaa", "redis:6379@bbb", "redis:6379"]


def test_a_containers_paths_are_in_no_name() -> None:
    """Every container of an image has the same ones."""
    inside: dict[str, Any] = {"sockets": ("/run/redis/redis.sock",), "container": "aaa"}
    assert labels(server(1, **inside), server(2, ports=(), **inside)) == [
        "redis:6379@aaa",
        "redis:pid-2@aaa",
    ]


def test_units_tell_servers_apart() -> None:
    both = labels(server(1, unit="redis@a"), server(2, unit="redis@b"))
    assert both == ["redis:6379@redis@a", "redis:6379@redis@b"]


def test_where_nothing_else_differs_the_process_does() -> None:
    assert labels(server(1), server(2)) == ["redis:6379@pid-1", "redis:6379@pid-2"]
    same = labels(server(1, container="a"), server(2, container="a"))
    assert same == ["redis:6379@a,pid-1", "redis:6379@a,pid-2"]


def test_executables_that_do_not_run_are_told_apart_by_their_path() -> None:
    both = labels(server(0), server(0, exe_name="/opt/r"))
    assert both == ["redis@/usr/bin/r", "redis@/opt/r"]
    assert labels(server(0)) == ["redis"]
