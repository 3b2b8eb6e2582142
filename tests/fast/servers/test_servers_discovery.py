# SPDX-License-Identifier: Apache-2.0
"""Servers are found in a /proc made of files, and have unique labels."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from qjoule.servers.discovery import discover, find_servers, make_labels_unique, place_of
from qjoule.servers.types import Fact, Server
from servers.fake_proc import FakeProc
from servers.toy_elf import MARIADB_10_11, MYSQL_8, POSTGRES, toy_server

BANNERS = {
    "mariadbd": ("10.11.19-MariaDB", [MARIADB_10_11]),
    "mysqld": ("MySQL 8.0.36 ", [MYSQL_8]),
    "postgres": ("PostgreSQL 15.20 (Debian) on x86_64", POSTGRES),
    "redis-server": ('Redis version=%s, bits=%d\\0" "2.6.12\\0" "7.0.15\\0" "7.0.3', []),
}


@pytest.fixture(scope="session")
def toys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("toys")
    return {
        name: toy_server(directory / name, functions, banner=banner)
        for name, (banner, functions) in BANNERS.items()
    }


def running(fake: FakeProc) -> list[Server]:
    """The running servers below this machine's root, so that paths in links resolve."""
    return [server for server in find_servers(fake.tree, Path("/")) if server.running]


def test_children_belong_to_their_postmaster(fake: FakeProc, toys: dict[str, Path]) -> None:
    postgres = str(toys["postgres"])
    fake.add(200, postgres)
    fake.add(300, postgres)  # a second cluster of the same executable
    fake.add(201, postgres, parent=200)
    fake.add(202, postgres, parent=200, name="postgres: a (b) c)")
    fake.add(301, postgres, parent=300)
    fake.add(302, str(toys["mysqld"]), parent=300)
    orphan = fake.add(400, postgres, parent=1)
    (orphan / "cmdline").write_text("postgres: checkpointer \0")
    assert {(server.flavour, server.tgids) for server in running(fake)} == {
        *(("postgres", (200, 201, 202)), ("postgres", (300, 301))),
        ("mysql", (302,)),
    }


def test_an_executable_that_was_replaced(
    fake: FakeProc, toys: dict[str, Path], tmp_path: Path
) -> None:
    old = tmp_path / "mysqld (deleted)"
    shutil.copy(toys["mysqld"], old)
    shutil.copy(toys["mariadbd"], tmp_path / "mysqld")  # what the package put there
    fake.add(100, str(old))
    (server,) = running(fake)
    assert server.flavour == "mysql"
    assert server.exe_path == fake.tree / "100" / "exe"
    assert server.exe_name == str(tmp_path / "mysqld")


def test_names_are_only_a_hint(fake: FakeProc, toys: dict[str, Path], tmp_path: Path) -> None:
    exporter = toy_server(tmp_path / "mysqld_exporter", ["collect"], banner="for MySQL 8.0.1 ")
    renamed = tmp_path / "mysqld-8.0"
    shutil.copy(toys["mysqld"], renamed)
    script = tmp_path / "postgres"
    script.write_text("#!/bin/sh\n")
    fake.add(100, str(exporter))
    fake.add(101, str(renamed))
    fake.add(102, str(script))
    fake.add(103, str(tmp_path / "mysqldump"))
    discovery = discover(fake.tree, fake.host)
    assert [server.tgids for server in discovery.servers] == [(101,)]
    (unreadable,) = discovery.unreadable
    assert "postgres" in unreadable


def test_processes_that_vanish_while_we_look(fake: FakeProc, toys: dict[str, Path]) -> None:
    fake.add(100, str(toys["mysqld"]))
    (fake.tree / "101").mkdir()  # gone before its link was read
    gone = fake.add(102, str(toys["mysqld"]))
    (gone / "stat").unlink()
    half = fake.add(103, str(toys["postgres"]), cwd="/nonexistent")
    for name in ("cmdline", "environ", "cwd", "root"):
        (half / name).unlink()
    cut = fake.add(104, str(toys["mysqld"]))
    (cut / "stat").write_text("104 (mysqld")
    servers = {server.tgids: server for server in running(fake)}
    assert set(servers) == {(100,), (103,)}
    assert servers[(103,)].encryption.value is None


def test_installed_servers_come_after_running_ones(fake: FakeProc, toys: dict[str, Path]) -> None:
    places = ("usr/sbin/mariadbd", "usr/lib/postgresql/15/bin/postgres")
    for place in places:
        path = fake.host / place
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(toys[path.name], path)
    (fake.host / "usr/sbin/mysqld").symlink_to("mariadbd")  # as in Debian: one server
    fake.add(100, str(fake.host / places[0]))
    maria, postgres = find_servers(fake.tree, fake.host)
    assert (maria.id, maria.running, postgres.id, postgres.running) == (1, True, 2, False)


def test_a_redis_is_known_by_its_title(fake: FakeProc, toys: dict[str, Path]) -> None:
    """In Debian, redis-server is a link to redis-check-rdb, and so are the other tools."""
    exe = toys["redis-server"].with_name("redis-check-rdb")
    shutil.copy(toys["redis-server"], exe)
    titles = ["redis-server *:6379", str(exe), "redis-sentinel *:26379 [sentinel]", "cache-a"]
    for pid, title in enumerate(titles, start=400):
        entry = fake.add(pid, str(exe), comm="redis-server")
        (entry / "cmdline").write_text(title + "\0" * 20)
    servers = running(fake)
    assert [server.tgids for server in servers] == [(400,), (403,)]
    assert {server.program for server in servers} == {str(toys["redis-server"])}


# ---- labels --------------------------------------------------------------------------------------

ID = "3f2a9c1b7d20" + "e" * 52
NO = Fact(False, "")


@pytest.mark.parametrize(
    ("control_groups", "container", "unit"),
    [
        (f"12:cpu:/docker/{ID}\n1:name=systemd:/docker/{ID}\n", ID[:12], ""),
        (f"0::/kubepods.slice/kubepods-pod7.slice/cri-containerd-{ID}.scope", ID[:12], ""),
        ("0::/lxc.payload.shop/system.slice/redis.service", "shop", "redis"),
        ("0::/user.slice/user-0.slice/session-3.scope", "", ""),
        (f"0::/x{ID}", "", ""),
    ],
)
def test_a_control_group_names_container_and_unit(
    control_groups: str, container: str, unit: str
) -> None:
    assert place_of(control_groups) == (container, unit)


def redis(pid: int, port: int = 6379, **fields: Any) -> Server:
    tgids, ports = ((pid,), (port,)) if pid else ((), ())
    server = Server(0, "redis", "7", Path("/r"), "/usr/bin/r", (1, 2), tgids, ports, (), NO, NO)
    return Server(**{**vars(server), **fields})


#: Every container of an image has the same paths inside, so these are in no name.
INSIDE: dict[str, Any] = {"sockets": ("/run/redis/redis.sock",), "container": "aaa"}


@pytest.mark.parametrize(
    ("servers", "labels"),
    [
        ([redis(1), redis(2)], ["redis:6379@pid-1", "redis:6379@pid-2"]),
        (
            [redis(1, container="aaa"), redis(2, container="bbb"), redis(3)],
            ["redis:6379@aaa", "redis:6379@bbb", "redis:6379"],
        ),
        ([redis(1, **INSIDE), redis(2, ports=(), **INSIDE)], ["redis:6379@aaa", "redis:pid-2@aaa"]),
        (
            [redis(1, unit="redis@a"), redis(2, unit="redis@b")],
            ["redis:6379@redis@a", "redis:6379@redis@b"],
        ),
        ([redis(0), redis(0, exe_name="/opt/r")], ["redis@/usr/bin/r", "redis@/opt/r"]),
    ],
)
def test_labels_are_short_and_unique(servers: list[Server], labels: list[str]) -> None:
    assert [server.label for server in make_labels_unique(servers)] == labels
