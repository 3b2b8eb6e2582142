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
    Check("privileges", True, "CAP_SYS_ADMIN"),
    Check("btf", True, "/sys/kernel/btf/vmlinux"),
    Check("tracepoint sched_switch", True, "present"),
    Check("powercap", False, "no intel-rapl zones", "modprobe intel_rapl_msr"),
    Check("lockdown", None, "unknown"),
)


def server(path: Path, **changes: object) -> Server:
    status = path.stat()
    base = Server(
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
    return examined(replace(base, **changes))  # type: ignore[arg-type]


def findings(*servers: Server, checks: tuple[Check, ...] = GOOD) -> doctor.Findings:
    plan = build_plan(servers, KernelFacts(True, True, True))
    return doctor.Findings(checks, "1.6 W idle", plan, Discovery(servers, 0, ()))


@pytest.fixture
def maria(tmp_path: Path) -> Path:
    return toy_server(tmp_path / "mariadbd", [MARIADB_10_11], flags=("-O0",))


def run(
    monkeypatch: pytest.MonkeyPatch, found: doctor.Findings, *options: str, color: bool = False
) -> Result:
    monkeypatch.setattr(doctor, "examine", lambda _root: found)
    return CliRunner().invoke(doctor.command, options, color=color)


def test_the_screen(monkeypatch: pytest.MonkeyPatch, maria: Path) -> None:
    result = run(monkeypatch, findings(server(maria)))
    flat = " ".join(result.output.split())
    assert result.exit_code == 0
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


@pytest.mark.parametrize("width", [60, 80, 100])
def test_no_line_is_wider_than_the_terminal(maria: Path, width: int) -> None:
    sockets = ("/a/rather/long/path/of/a/socket.sock", "/and/another/one/of/them.sock")
    checks = (*GOOD, Check("word", False, "detail " * 30, "fix " * 40))
    lines = list(doctor.render(findings(server(maria, sockets=sockets), checks=checks), width))
    assert len(lines) > 10
    # A path is one word and may be longer than the screen; a line break would make it useless.
    plain = [click.unstyle(line) for line in lines]
    assert [x for x in plain if len(x) > width and len(max(x.split(), key=len)) < width - 11] == []


@pytest.mark.parametrize(
    ("checks", "word"),
    [
        ((Check("privileges", False, "no capability", "run it with sudo"),), "run it with sudo"),
        ((Check("btf", False, "no vmlinux", "use another kernel"),), "use another kernel"),
    ],
)
def test_what_stands_in_the_way(
    monkeypatch: pytest.MonkeyPatch, checks: tuple[Check, ...], word: str
) -> None:
    result = run(monkeypatch, findings(checks=checks))
    assert result.exit_code == 1
    assert "Not ready:" in result.output
    assert word in result.output


def test_a_server_that_cannot_be_traced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stripped = toy_server(tmp_path / "mysqld", [])
    result = run(monkeypatch, findings(server(stripped)))
    assert result.exit_code == 1
    assert "mariadb:3306 cannot be traced" in " ".join(result.output.split())
    # A server that is not running is no problem.
    assert run(monkeypatch, findings(server(stripped, tgids=()))).exit_code == 0


def test_no_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, findings())
    assert "none found" in result.output
    assert result.exit_code == 0


def test_json(monkeypatch: pytest.MonkeyPatch, maria: Path) -> None:
    result = run(monkeypatch, findings(server(maria)), "--json")
    report = json.loads(result.output)
    assert (report["schema"], report["ready"], report["problems"]) == (doctor.SCHEMA, True, [])
    assert report["checks"][0] == {"name": "kernel", "ok": True, "detail": "6.12.1", "fix": ""}
    (entry,) = report["servers"]
    assert (entry["rung"], entry["pids"], entry["ports"]) == ("symbol", [4711], [3306])
    assert [probe["role"] for probe in entry["probes"]] == [
        "mysql-begin-command-first",
        "mysql-end",
    ]


def test_what_else_listens(monkeypatch: pytest.MonkeyPatch, maria: Path) -> None:
    """Listed separately: they can be traced, but nothing is traced unless asked."""
    restart = Restart("arguments", "a restart is known by its executable and arguments", 1)
    java = server(
        maria,
        flavour="generic",
        name="java\x1b[2J",
        ports=(7000, 9042),
        udp_ports=(53,),
        tgids=(12, 13),
        restart=restart,
    )
    unix = replace(java, name="dbus", ports=(), udp_ports=(), tgids=(14,))
    found = replace(findings(server(maria)), generic=(java, unix, *(unix,) * 20))
    flat = " ".join(run(monkeypatch, found).output.split())
    for text in (
        "Other servers not traced unless asked for, with --generic or --pid",
        "pid 12 and 1 more, port 7000, port 9042, UDP port 53; a restart is known by",
        "dbus, pid 14, /run/mysqld.sock; a restart",
        "and 6 more: see --json",
        "Ready: 1 running server.",
    ):
        assert text in flat
    assert "\x1b" not in flat
    report = json.loads(run(monkeypatch, found, "--json").output)
    assert len(report["generic_servers"]) == 22
    assert report["generic_servers"][0]["ports"] == [7000, 9042]
    assert len(report["servers"]) == 1


def test_names_that_processes_chose_are_harmless(maria: Path) -> None:
    hostile = "/run/\x1b[2J\x1b]0;owned\x07\u202e\n.sock"
    found = findings(server(maria, sockets=(hostile,), version="1\x1b[31m"))
    text = "\n".join(click.unstyle(line) for line in doctor.render(found, 80))
    assert not set(text) & set("\x1b\x07\u202e\x9b")
    assert "\n.sock" not in text


def test_colour_only_where_it_is_wanted(monkeypatch: pytest.MonkeyPatch, maria: Path) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    found = findings(server(maria))
    assert "\x1b[" not in run(monkeypatch, found).output  # not a terminal
    assert "\x1b[" in run(monkeypatch, found, color=True).output
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in run(monkeypatch, found, color=True).output


def test_this_machine() -> None:
    """Runs unmocked, privileged or not: it examines everything without an error."""
    result = CliRunner().invoke(doctor.command, ["--json"])
    report = json.loads(result.output)
    assert result.exit_code == (0 if report["ready"] else 1)
    assert {"kernel", "privileges", "btf"} <= {check["name"] for check in report["checks"]}
    assert "W idle" in report["estimated_power"]
