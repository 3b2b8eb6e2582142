# SPDX-License-Identifier: Apache-2.0
"""Servers of unknown protocol: which are found, their names, and how a restart is recognised."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from qjoule.servers.choice import KernelFacts
from qjoule.servers.discovery import find_servers
from qjoule.servers.generic import by_thread_instead, find_generic
from qjoule.servers.hosts import DirectHost
from qjoule.servers.plan import build_plan
from qjoule.servers.types import Server
from servers.fake_proc import FakeProc
from servers.toy_elf import MYSQL_8, toy_server

KERNEL = KernelFacts(reads=True, sends=True, uprobes=True)
ITSELF = 999_999


@pytest.fixture
def runtime(tmp_path: Path) -> str:
    """An executable with that name; its content does not matter."""
    path = tmp_path / "java"
    shutil.copy("/bin/true", path)
    return str(path)


def generic(fake: FakeProc) -> list[Server]:
    return find_generic([], DirectHost(fake.tree), ITSELF)


def test_whatever_listens_is_named_by_process_and_port(fake: FakeProc, runtime: str) -> None:
    fake.add(100, runtime, comm="java")
    fake.listen(100, port=9042, unix="/run/one.sock")
    fake.add(101, runtime, comm="unbound")
    fake.listen(101, udp=53, inode=78)
    fake.add(102, runtime, comm="dbus")
    fake.listen(102, unix="/run/dbus", inode=79)
    fake.add(103, runtime, comm="worker")  # does not listen
    java, unbound, dbus = sorted(generic(fake), key=lambda server: server.tgids)
    assert [java.label, unbound.label, dbus.label] == ["java:9042", "unbound:53", "dbus:pid-102"]
    assert (java.ports, java.sockets) == ((9042,), ("/run/one.sock",))
    assert (unbound.ports, unbound.udp_ports) == ((), (53,))


def test_a_port_that_the_kernel_gave_out_is_a_clients(fake: FakeProc, runtime: str) -> None:
    fake.add(100, runtime)
    fake.listen(100, udp=40000)
    assert generic(fake) == []
    (fake.tree / "sys/net/ipv4").mkdir(parents=True)
    (fake.tree / "sys/net/ipv4/ip_local_port_range").write_text("50000\t60000\n")
    assert [server.udp_ports for server in generic(fake)] == [(40000,)]


def test_each_network_namespace_has_ports_of_its_own(fake: FakeProc, runtime: str) -> None:
    """Two containers listen on the same port; a third process shares the first one's network."""
    for pid, namespace in ((100, "net:[1]"), (101, "net:[2]"), (102, "net:[1]")):
        entry = fake.add(pid, runtime, comm=f"c{pid}")
        (entry / "ns").mkdir()
        (entry / "ns/net").symlink_to(namespace)
        fake.listen(pid, port=6379, inode=500 + pid % 2)
    (fake.tree / "102/net/tcp").unlink()  # read once for each namespace
    assert {s.label for s in generic(fake)} == {"c100:6379", "c101:6379", "c102:6379"}


def test_workers_are_of_the_server_that_forked_them(
    fake: FakeProc, runtime: str, tmp_path: Path
) -> None:
    other = tmp_path / "node"
    shutil.copy(runtime, other)
    fake.add(100, runtime, comm="nginx")
    fake.add(101, runtime, parent=100)
    fake.add(102, runtime, parent=101)
    fake.add(103, runtime, parent=100, comm="another")  # listens, but its parent does not
    fake.add(104, str(other), parent=100, comm="node")  # was handed the socket
    for pid in (100, 101, 102, 104):
        fake.listen(pid, port=80)
    fake.listen(103, port=81, inode=78)
    assert sorted(server.tgids for server in generic(fake)) == [(100, 101, 102), (103,), (104,)]


def test_neither_qjoule_nor_systemd_nor_a_known_server_is_generic(
    fake: FakeProc, runtime: str, tmp_path: Path
) -> None:
    for pid, name in ((100, "systemd"), (101, "qjoule-tracer")):
        path = tmp_path / name
        shutil.copy(runtime, path)
        fake.add(pid, str(path))
    fake.add(ITSELF, runtime)
    mysqld = toy_server(tmp_path / "mysqld", [MYSQL_8], banner="MySQL 8.0.36 ")
    fake.add(103, str(mysqld))
    for pid in (100, 101, ITSELF, 103):
        fake.listen(pid, port=3306, inode=pid)
    found_servers = [server for server in find_servers(fake.tree, Path("/")) if server.running]
    assert [server.tgids for server in found_servers] == [(103,)]
    assert find_generic(found_servers, DirectHost(fake.tree), ITSELF) == []


def test_a_known_server_that_cannot_be_traced_becomes_generic(
    fake: FakeProc, tmp_path: Path
) -> None:
    mysqld = toy_server(tmp_path / "mysqld", [MYSQL_8], banner="MySQL 8.0.36 ", flags=("-O0",))
    fake.add(300, str(mysqld))
    fake.listen(300, port=3306)
    servers = [server for server in find_servers(fake.tree, Path("/")) if server.running]
    nothing = KernelFacts(reads=False, sends=False, uprobes=False)
    assert build_plan(servers, nothing).traced == ()
    by_thread = build_plan(by_thread_instead(servers, build_plan(servers, nothing)), nothing)
    assert "1:generic:none:" in by_thread.arguments()[1]
    assert by_thread.traced[0].choice.by_thread
    # Where the server itself can be traced, nothing changes.
    assert by_thread_instead(servers, build_plan(servers, KERNEL)) == servers


@pytest.mark.parametrize(
    ("command_line", "how"),
    [
        (b"/usr/bin/java\0-jar\0x.jar\0", "arguments"),
        (b"java *:6379\0\0\0\0", "executable"),  # a title that begins with the executable's name
        (b"other-name *:6379\0\0\0", "executable"),  # a link beside the executable, as redis-server
        (b"gunicorn: master [app]\0\0", "never"),  # runs java, its title differs
        (b"", "never"),
    ],
)
def test_what_a_restart_is_known_by(
    fake: FakeProc, runtime: str, command_line: bytes, how: str
) -> None:
    (Path(runtime).parent / "other-name").symlink_to(runtime)
    fake.add(100, runtime, command_line=command_line, root=Path("/"))
    fake.listen(100, port=1)
    (server,) = generic(fake)
    assert server.restart.how == how
    assert server.restart.why
    assert bool(server.restart.arguments) == (how == "arguments")
