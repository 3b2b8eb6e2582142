# SPDX-License-Identifier: Apache-2.0
"""`qjoule doctor`: its screen, its JSON and its exit code."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from qjoule.commands import doctor
from qjoule.machine.check import Check
from qjoule.servers.discovery import Discovery
from qjoule.servers.kernel_facts import KernelFacts
from qjoule.servers.plan import build_plan
from qjoule.servers.types import Fact, Restart, Server
from servers.examined import examined
from servers.toy_elf import MARIADB_10_11, toy_server

GOOD = (
    Check("kernel", True, "6.12.1"),
    Check("powercap", False, "no intel-rapl zones", "modprobe intel_rapl_msr"),
    Check("lockdown", None, "unknown"),
)


def mariadb(path: Path, **changes: object) -> Server:
    status = path.stat()
    server = Server(
        id=1,
        flavour="mariadb",
        version="10.11.19",
        exe_path=path,
        exe_name=str(path),
        exe_id=(status.st_dev, status.st_ino),
        tgids=(4711,),
        ports=(3306,),
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
        "rung symbol: a thread pool moves queries between threads (thread-handling=pool-of-threads",
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
    assert (server["rung"], server["pids"], server["ports"]) == ("symbol", [4711], [3306])
    roles = [probe["role"] for probe in server["probes"]]
    assert roles == ["mysql-begin-command-first", "mysql-end"]


@pytest.mark.parametrize("width", [60, 100])
def test_no_line_is_wider_than_the_terminal(executable: Path, width: int) -> None:
    sockets = ("/a/rather/long/path/of/a/socket.sock", "/and/another/one/of/them.sock")
    checks = (*GOOD, Check("word", False, "detail " * 30, "fix " * 40))
    shown = doctor.render(findings(mariadb(executable, sockets=sockets), checks=checks), width)
    lines = [click.unstyle(line) for line in shown]
    # A path is one word and may be longer than the screen; a line break would make it useless.
    breakable = [line for line in lines if len(max(line.split(), key=len, default="")) < width - 11]
    assert len(breakable) > 10
    assert all(len(line) <= width for line in breakable)


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


def test_colour_is_only_for_terminals_that_want_it(
    monkeypatch: pytest.MonkeyPatch, executable: Path
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    results = findings(mariadb(executable))
    assert "\x1b[" not in run(monkeypatch, results).output  # not a terminal
    assert "\x1b[" in run(monkeypatch, results, color=True).output
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in run(monkeypatch, results, color=True).output


def test_this_machine_is_examined_without_an_error() -> None:
    result = CliRunner().invoke(doctor.command, ["--json"])
    report = json.loads(result.output)
    assert result.exit_code == (0 if report["ready"] else 1)
    assert {"kernel", "privileges", "btf"} <= {check["name"] for check in report["checks"]}
    assert "W idle" in report["estimated_power"]
