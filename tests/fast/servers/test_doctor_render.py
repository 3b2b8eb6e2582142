# SPDX-License-Identifier: Apache-2.0
"""`qjoule doctor`: its screen, its JSON and its exit code; `--traffic` proves what is exact."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from qjoule.commands import doctor, doctor_traffic
from qjoule.contract import AttachMode
from qjoule.machine.facts import Check
from qjoule.servers.attach_plan import PlannedServer
from qjoule.servers.choice import Choice, KernelFacts
from qjoule.servers.discovery import Discovery
from qjoule.servers.plan import build_plan
from qjoule.servers.types import Fact, Restart, Server
from qjoule.session.traffic import Traffic
from servers.fake_proc import examined
from servers.toy_elf import MARIADB_10_11, toy_server

GOOD = (
    Check("kernel", True, "6.12.1"),
    Check("powercap", False, "no intel-rapl zones", "modprobe intel_rapl_msr"),
    Check("lockdown", None, "unknown"),
)


def mariadb(path: Path, **changes: object) -> Server:
    file_id = (path.stat().st_dev, path.stat().st_ino)
    server = Server(
        *(1, "mariadb", "10.11.19", path, str(path), file_id, (4711,), (3306,)),
        sockets=("/run/mysqld.sock",),
        encryption=Fact(False, "no certificate configured"),
        thread_pool=Fact(True, "thread-handling=pool-of-threads: /etc/my.cnf"),
    )
    return examined(replace(server, **changes))  # type: ignore[arg-type]


def findings(*servers: Server, checks: tuple[Check, ...] = GOOD) -> doctor.Findings:
    plan = build_plan(servers, KernelFacts(True, True, True))
    return doctor.Findings(checks, "1.6 W idle", plan, Discovery(servers, 0, ()))


@pytest.fixture
def executable(tmp_path: Path) -> Path:
    return toy_server(tmp_path / "mariadbd", [MARIADB_10_11], flags=("-O0",))


def run(
    monkeypatch: pytest.MonkeyPatch, results: doctor.Findings, *options: str, color: bool = False
) -> Result:
    monkeypatch.setattr(doctor, "examine", lambda _root: results)
    return CliRunner().invoke(doctor.command, options, color=color)


def test_the_screen_shows_checks_servers_and_probes(
    monkeypatch: pytest.MonkeyPatch, executable: Path
) -> None:
    result = run(monkeypatch, findings(mariadb(executable)))
    assert result.exit_code == 0
    flat = " ".join(result.output.split())
    for text in (
        "ok kernel: 6.12.1",
        "missing powercap: no intel-rapl zones fix: modprobe intel_rapl_msr",
        "1. mariadb 10.11.19, pid 4711, port 3306, /run/mysqld.sock",
        "attach symbol: a thread pool moves queries between threads (thread-handling=pool",
        "socket: would need one thread per connection",
        "cost about 1.2 us a query",
        "probe mysql-begin-command-first at 0x",
        "push rbp: emulated",
        "Ready: 1 running server.",
    ):
        assert text in flat


def test_the_json_has_checks_servers_and_probes(
    monkeypatch: pytest.MonkeyPatch, executable: Path
) -> None:
    report = json.loads(run(monkeypatch, findings(mariadb(executable)), "--json").output)
    assert (report["schema"], report["ready"], report["problems"]) == (doctor.SCHEMA, True, [])
    assert report["checks"][0] == {"name": "kernel", "ok": True, "detail": "6.12.1", "fix": ""}
    (server,) = report["servers"]
    assert (server["attach_mode"], server["pids"], server["ports"]) == ("symbol", [4711], [3306])
    roles = [probe["role"] for probe in server["probes"]]
    assert roles == ["mysql-begin-command-first", "mysql-end"]


@pytest.mark.parametrize(("name", "fix"), [("privileges", "with sudo"), ("btf", "another kernel")])
def test_a_missing_requirement_fails_with_its_fix(
    monkeypatch: pytest.MonkeyPatch, name: str, fix: str
) -> None:
    result = run(monkeypatch, findings(checks=(Check(name, False, "missing", fix),)))
    assert result.exit_code == 1
    assert "Not ready:" in result.output
    assert fix in result.output


def test_only_a_running_server_that_cannot_be_traced_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stripped = toy_server(tmp_path / "mysqld", [])
    result = run(monkeypatch, findings(mariadb(stripped)))
    assert result.exit_code == 1
    assert "mariadb:3306 cannot be traced" in " ".join(result.output.split())
    assert run(monkeypatch, findings(mariadb(stripped, tgids=()))).exit_code == 0
    nothing = run(monkeypatch, findings())
    assert (nothing.exit_code, "none found" in nothing.output) == (0, True)


def test_other_listeners_are_listed_apart(
    monkeypatch: pytest.MonkeyPatch, executable: Path
) -> None:
    java = mariadb(
        executable,
        flavour="generic",
        name="java\x1b[2J",
        ports=(7000, 9042),
        udp_ports=(53,),
        tgids=(12, 13),
        restart=Restart("arguments", "a restart is known by its executable and arguments", 1),
    )
    dbus = replace(java, name="dbus", ports=(), udp_ports=(), tgids=(14,))
    results = replace(findings(mariadb(executable)), generic=(java, *(dbus,) * 21))
    flat = " ".join(run(monkeypatch, results).output.split())
    for text in (
        "Other servers not traced unless asked for, with --generic or --pid",
        "pid 12 and 1 more, port 7000, port 9042, UDP port 53; a restart is known by",
        "dbus, pid 14, /run/mysqld.sock; a restart",
        "and 6 more: see --json",
        "Ready: 1 running server.",
    ):
        assert text in flat
    assert "\x1b" not in flat
    report = json.loads(run(monkeypatch, results, "--json").output)
    assert (len(report["generic_servers"]), len(report["servers"])) == (22, 1)


def test_a_processs_own_names_cannot_control_the_terminal(executable: Path) -> None:
    hostile = "/run/\x1b[2J\x1b]0;owned\x07\u202e\n.sock"
    results = findings(mariadb(executable, sockets=(hostile,), version="1\x1b[31m"))
    text = "\n".join(click.unstyle(line) for line in doctor.render(results, 80))
    assert not set(text) & set("\x1b\x07\u202e\x9b")
    assert "\n.sock" not in text


def test_this_machine_is_examined_without_an_error() -> None:
    result = CliRunner().invoke(doctor.command, ["--json"])
    report = json.loads(result.output)
    assert result.exit_code == (0 if report["ready"] else 1)
    assert {"kernel", "privileges", "btf"} <= {check["name"] for check in report["checks"]}
    assert "W idle" in report["estimated_power"]


NO = Fact(False, "")
REDIS = Path("/redis-server")
SOCKET = {3: frozenset({"socket"})}


def planned(
    attach_mode: AttachMode = AttachMode.SOCKET, *, exact: bool = True, runs: bool = True
) -> PlannedServer:
    tgids = (100,) if runs else ()
    server = Server(3, "redis", "8.0", REDIS, str(REDIS), (1, 2), tgids, (6379,), (), NO, NO)
    return PlannedServer(
        server, Choice(attach_mode, "why", exact=exact, no_symbol="Redis has none")
    )


@pytest.mark.parametrize(
    ("traffic", "begins", "proven"),
    [
        (Traffic(1, {3: 1234}, SOCKET), "1,234 requests in 1 s; lost, of all servers: no", True),
        (Traffic(1, {3: 1000}, SOCKET, loss={"framing": 11}), "1,000 requests in 1 s; lost", False),
        (Traffic(1, {4: 9}, {4: SOCKET[3]}), "no request in 1 s, so this is not proven", False),
        (Traffic(1, hidden={3: 2}), "0 requests in 1 s, and 2 sessions hidden by TLS or", False),
        (Traffic(1, {3: 5}, SOCKET, hidden={3: 1}), "5 requests in 1 s, and 1", False),
    ],
)
def test_requests_and_losses_decide(traffic: Traffic, begins: str, proven: bool) -> None:
    assert doctor_traffic.describe(traffic, planned()).startswith(begins)
    assert doctor_traffic.of_server(traffic, planned())["traffic"]["proven_exact"] is proven
    inexact = doctor_traffic.of_server(traffic, planned(exact=False))
    assert not inexact["traffic"]["proven_exact"]


def test_other_attach_modes_and_problems_are_named() -> None:
    both = Traffic(1, {3: 5}, {3: frozenset({"socket", "statistical"})})
    assert "some on another attach mode: statistical" in doctor_traffic.describe(both, planned())
    failed = Traffic(2, problem="refused")
    assert doctor_traffic.describe(failed, planned()) == "not measured: refused"


@pytest.mark.parametrize("server", [planned(AttachMode.NONE), planned(runs=False)])
def test_only_running_servers_with_queries_are_measured(server: PlannedServer) -> None:
    assert doctor_traffic.describe(Traffic(1, {3: 5}, SOCKET), server) == ""
    assert doctor_traffic.of_server(Traffic(1, {3: 5}, SOCKET), server) == {}


def test_too_many_losses_raise_an_alarm() -> None:
    dark = Traffic(1, loss={"framing": 42_139})
    (line,) = doctor_traffic.alarm(dark)
    assert line.startswith("100.0 % of requests were lost")
    assert doctor_traffic.to_json(dark)["traffic"]["alarm"] == line
    for quiet in (Traffic(1, {3: 5}, SOCKET), None):
        assert list(doctor_traffic.alarm(quiet)) == []
    assert doctor_traffic.to_json(None) == {}
