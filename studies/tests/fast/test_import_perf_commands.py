# SPDX-License-Identifier: Apache-2.0
"""`qjoule import perf --print-commands`: the script for the host."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from qjoule.contract import AttachMode
from qjoule.servers.attach_plan import PlannedServer
from qjoule.servers.choice import Choice
from qjoule.servers.elf import Symbol
from qjoule.servers.probe_site import EMULATED_PUSH, ProbeSite
from qjoule.servers.resolution import Probe, Resolution
from qjoule.servers.types import Fact, Server
from qjoule_studies.import_perf.probes import commands
from qjoule_studies.import_perf.scan import PROBE


def _probe(role: str, offset: int) -> Probe:
    site = ProbeSite(offset, "push rbp", EMULATED_PUSH, "emulated", b"\x55")
    return Probe(role, Symbol("f", offset, 10, ".symtab"), site)


def _server(flavour: str, version: str, *probes: Probe, name: str = "") -> PlannedServer:
    resolution = Resolution((1, 2), boundary=probes, facts={"portal-start": 200})
    server = Server(
        *(2, flavour, version, Path("/usr/sbin/x"), "/usr/sbin/x", (1, 2), (812, 813)),
        *((3306,), (), Fact(False, ""), Fact(False, "")),
        name=name,
        resolution=resolution,
    )
    return PlannedServer(server, Choice(AttachMode.SOCKET, "plain"))


MYSQL = _server(
    "mysql",
    "8.0.33",
    _probe("mysql-begin-thd-first", 0x1234),
    _probe("mysql-end", 0x1234),
)
POSTGRES = _server("postgres", "18.1", _probe("postgres-activity", 0x10))


def _definitions(script: str) -> list[str]:
    lines = [shlex.split(line) for line in script.splitlines() if line.startswith("echo")]
    return [line[1] for line in lines if not line[1].startswith("-:")]


def test_the_probes_are_where_qjoules_own_are() -> None:
    begin, end = _definitions(commands([MYSQL], seconds=5, counters=()))
    place, *arguments = begin.split()[1:]
    assert begin.startswith("p:qjoule_812/mysql_begin_2 ") and place == "/proc/812/exe:0x1234"
    assert arguments[-1] == "text=+0(+0(%si)):string"
    assert end == "r:qjoule_812/mysql_end_2 /proc/812/exe:0x1234 result=$retval:s32"
    (activity,) = _definitions(commands([POSTGRES], seconds=5, counters=()))
    assert activity.startswith("p:qjoule_812/pg18_activity_2 "), "18 has other states"


def test_every_event_is_recorded_and_removed_and_known_to_the_import() -> None:
    script = commands([MYSQL, POSTGRES], seconds=5, counters=("energy-pkg", "energy-ram"))
    record = next(line for line in script.splitlines() if line.startswith("perf record"))
    assert "-k CLOCK_MONOTONIC" in record and "-e sched:sched_switch" in record
    assert "-e power/energy-pkg/,power/energy-ram/ -o qjoule-energy.csv -- sleep 5" in record
    for definition in _definitions(script):
        path = definition.split()[0].split(":")[1]
        event = path.replace("/", ":")
        assert f"-e {event}" in record and f"echo -:{path} " in script
        assert PROBE.match(event.encode())


@pytest.mark.needs("bash")
@pytest.mark.parametrize(
    "name", ["a\nrm -rf x", "a\x0crm", "$(touch x)", "'; touch x; '", "a\u2028b"]
)
def test_no_name_is_a_command(name: str, tmp_path: Path) -> None:
    hostile = _server("generic", "1", name=name)
    script = commands([hostile], seconds=1, counters=())
    stubs = "perf() { :; }; qjoule() { :; }; rm() { echo ran; }; umask() { :; }\n"
    done = subprocess.run(
        ["bash", "-e", "-c", stubs + script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("", "")
    assert list(tmp_path.iterdir()) == []
