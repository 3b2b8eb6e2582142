# SPDX-License-Identifier: Apache-2.0
"""Discovery, symbols and probe sites against real servers, this machine's /proc and its kernel."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from qjoule.contract import Rung
from qjoule.servers.discovery import find_servers
from qjoule.servers.kernel_facts import KernelFacts
from qjoule.servers.plan import PlannedServer, build_plan
from qjoule.servers.probe_site import SINGLE_STEPPED
from qjoule.servers.types import Server
from servers.certificates import self_signed
from servers.mariadb import mariadb_server
from servers.process import DatabaseServer
from servers.toy_elf import MARIADB_10_11, toy_server
from servers.uprobe import open_uprobe

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

WAIT_S = 60.0
#: Statements for functions that not every statement runs through.
WHAT_REACHES = {
    "mysql-database": "USE mysql",
    "mysql-database-end": "USE mysql",
    "postgres-failed": "SELECT 1 / 0",
    "postgres-report": "SELECT 1 / 0",
}
KERNEL = KernelFacts(reads=True, sends=True, uprobes=True)


def found(server: DatabaseServer) -> Server:
    (one,) = [s for s in find_servers() if server.pid in s.tgids]
    return one


def planned(server: DatabaseServer, rung: Rung | None = None) -> PlannedServer:
    (one,) = build_plan(find_servers(), KERNEL, rung, [server.pid]).servers
    return one


def roles(plan: PlannedServer) -> list[str]:
    return [probe.role for probe in plan.probes]


def test_mariadb(mariadb: DatabaseServer) -> None:
    server = found(mariadb)
    assert server.flavour == "mariadb"
    assert server.version.startswith(("10.", "11.", "12."))
    assert (server.ports, server.tgids) == ((mariadb.port,), (mariadb.pid,))
    assert server.sockets == (str(mariadb.socket),)
    assert server.exe_path == mariadb.executable
    plan = planned(mariadb)
    assert (plan.choice.rung, plan.choice.exact) == (Rung.SOCKET, True), plan.choice
    assert plan.probes == ()
    assert roles(planned(mariadb, Rung.SYMBOL)) == [
        "mysql-begin-command-first",
        *("mysql-client", "mysql-log-thd-first", "mysql-database", "mysql-database-end"),
    ]


def test_mariadb_with_a_pool(mariadb_pool: DatabaseServer) -> None:
    plan = planned(mariadb_pool)
    assert plan.choice.rung is Rung.SYMBOL
    assert "thread pool" in plan.choice.why
    arguments = build_plan(find_servers(), KERNEL, pids=[mariadb_pool.pid]).arguments()
    assert arguments[-2:] == ["--fact", f"{plan.server.id}:pool:0x1"]


def test_mariadb_with_a_certificate_agrees_with_the_server(tmp_path: Path) -> None:
    key, certificate = self_signed(tmp_path)
    with mariadb_server(f"--ssl-key={key}", f"--ssl_cert={certificate}") as server:
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT @@have_ssl")
            assert cursor.fetchone()[0] == "YES"
        plan = planned(server)
        assert plan.choice.rung is Rung.SYMBOL
        assert "ssl-cert: command line" in plan.choice.why


def test_mysql(mysql80: DatabaseServer) -> None:
    server, plan = found(mysql80), planned(mysql80)
    assert (server.flavour, server.version) == ("mysql", "8.0.15")
    assert plan.choice.rung is Rung.SYMBOL
    assert "TLS is on by default" in plan.choice.why
    assert roles(plan) == [
        "mysql-begin-thd-first",
        *("mysql-client", "mysql-log-logger-first", "mysql-database", "mysql-database-end"),
    ]


def test_postgres_with_its_children_and_ssl_in_its_files(postgres: DatabaseServer) -> None:
    """ALTER SYSTEM writes postgresql.auto.conf; that there is no certificate does not matter."""
    with postgres.connect() as connection:
        server = found(postgres)
        assert server.flavour == "postgres"
        assert (server.major or 0) >= 13
        assert server.tgids[0] == postgres.pid
        assert connection.info.backend_pid in server.tgids
        assert postgres.port in server.ports
        assert str(postgres.socket) in server.sockets
        assert server.encryption.value is False
        connection.execute("ALTER SYSTEM SET ssl = on")
        try:
            encryption = found(postgres).encryption
        finally:
            connection.execute("ALTER SYSTEM RESET ssl")
    assert encryption.value is True
    assert "postgresql.auto.conf" in encryption.source
    assert planned(postgres).choice.rung is Rung.SOCKET
    plan = planned(postgres, Rung.SYMBOL)
    assert plan.facts["idle"] > 0
    assert roles(plan) == [
        *("postgres-failed", "postgres-execute", "postgres-replication", "postgres-report"),
        *("postgres-launch-workers", "postgres-join-leader"),
    ]


@pytest.mark.parametrize("name", ["mariadb", "mysql80", "postgres"])
def test_the_kernel_takes_every_probe_and_single_steps_none(
    request: pytest.FixtureRequest, name: str
) -> None:
    """Uses perf_event_open(2) with the `uprobe` PMU, as the tracer's library does."""
    server: DatabaseServer = request.getfixturevalue(name)
    plan = planned(server, Rung.SYMBOL)
    for probe in plan.probes:
        assert probe.site.cost is not SINGLE_STEPPED, probe
        on_return = probe.role.endswith("-end")
        with open_uprobe(plan.server.exe_path, probe.site.offset, on_return) as hits:
            before = hits()
            with suppress(Exception), server.connect() as connection:
                connection.cursor().execute(WHAT_REACHES.get(probe.role, "SELECT 1"))
            if probe.role.startswith(("postgres-launch", "postgres-join", "postgres-repl")):
                continue
            # A function returns after its reply was sent, so the client may be quicker.
            deadline = time.monotonic() + WAIT_S
            while hits() <= before and time.monotonic() < deadline:
                time.sleep(0.01)
            assert hits() > before, probe


@contextmanager
def process(*argv: str) -> Iterator[int]:
    with subprocess.Popen(argv) as child:
        try:
            yield child.pid
        finally:
            child.kill()


def wait_for_name(pid: int, name: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while Path(f"/proc/{pid}/exe").readlink().name != name:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_executable_that_was_deleted(tmp_path: Path) -> None:
    path = toy_server(tmp_path / "mysqld", [MARIADB_10_11], banner="11.8.1-MariaDB")
    with process(str(path), "stay") as pid:
        wait_for_name(pid, "mysqld")
        path.unlink()
        (server,) = [s for s in find_servers() if pid in s.tgids]
        assert server.exe_path == Path(f"/proc/{pid}/exe")
        assert server.exe_name == str(path)
        (plan,) = build_plan([server], KERNEL, Rung.SYMBOL).servers
        assert roles(plan) == ["mysql-begin-command-first", "mysql-end"]


def test_a_server_in_another_mount_namespace(tmp_path: Path) -> None:
    """As in a container: the paths of its executable and files lead nowhere here."""
    hidden, toy = tmp_path / "hidden", tmp_path / "toy"
    hidden.mkdir()
    toy_server(toy, [MARIADB_10_11], banner="10.11.6-MariaDB")
    conf = f"{hidden}/my.cnf"
    script = (
        f"mount -t tmpfs none {hidden} && cp {toy} {hidden}/mariadbd && "
        f"printf '[mariadb]\\nthread-handling = pool-of-threads\\n' > {conf} && "
        f"exec {hidden}/mariadbd --defaults-file={conf}"
    )
    with process("unshare", "--mount", "sh", "-c", script) as pid:
        wait_for_name(pid, "mariadbd")
        assert not (hidden / "mariadbd").exists()
        (server,) = [s for s in find_servers() if pid in s.tgids]
        assert server.exe_path == Path(f"/proc/{pid}/root{hidden}/mariadbd")
        assert os.stat(server.exe_path).st_ino == server.exe_id[1]  # noqa: PTH116
        assert server.thread_pool.value is True
        assert server.thread_pool.source.endswith(conf)
