# SPDX-License-Identifier: Apache-2.0
"""Every option of `qjoule-tracer` refuses a bad value: exit code 2 and one line that names it."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from qjoule.servers import registry

TRACER = Path(sys.executable).parent / "qjoule-tracer"
SERVER = ("--server", "1:mysql:socket:2049:12")

pytestmark = pytest.mark.skipif(not TRACER.exists(), reason="qjoule-tracer is not built: make")

#: Values of each option that are refused.
BAD = {
    "--mode": ["", "recording", "record:"],
    "--window-ms": ["", "4", "60001", "-20", "20ms", " 20", "99999999999999999999"],
    "--flush-ms": ["4", "60001"],
    "--ring-mb": ["0", "1025", "1.5"],
    "--server": [
        *("", "1:mysql", "1:mysql:socket:/bin/true", "1:mysql:socket:2049:12:1"),
        *("0:mysql:socket:2049:12", "65:mysql:socket:2049:12", "1:oracle:socket:2049:12"),
    ],
    "--running": ["", "1:1"],
    "--restart": ["", "1:never"],
    "--fact": ["", "1:pool:1"],
    "--probe": ["", "1:mysql-end:1:0x10:55"],
    "--counter": ["", "cycles=x:0", "cycle=1:0", "more=1", "more=1:u"],
    "--reader": ["0", "2147483648"],
    "--control-fd": ["-1", "stdin"],
    "--root": ["-1", "stdin"],
}
#: Options that take any text; what it names is looked up later.
FREE = ["--energy", "--cpu-topology", "--host-root", "--curve", "--curve-label"]
#: Bad even if the server that they refer to is given.
BAD_OF_A_SERVER = {
    "--server": ["1:mysql:socket:2049:12", "3:mysql:socket:2049:12"],
    "--running": ["2:1", "1:x"],
    "--restart": ["2:never", "1:never:0", "1:0x10000000000000000"],
    "--fact": ["1:pool:2", "1:pool:x", "2:pool:1", "1:poo:1"],
    "--probe": [
        *("1:mysql-end:1:0x10", "1:mysql-end:1:0x10:5g", "1:mysql-end:1:0x10:" + "55" * 17),
        *("1:mysql-end:0:0x10:55", "1:mysql-end:1:0x8000000000000000:55"),
        *("1:no-such-role:1:0x10:55", "2:mysql-end:1:0x10:55"),
    ],
}


def test_facts_have_limits_and_servers_their_attach_modes() -> None:
    """For every server: the largest allowed number is accepted, one more is not."""
    for device, server in enumerate(registry.servers().values(), 1):
        for attach_mode in registry.ATTACH_MODES:
            option = ("--server", f"1:{server.name}:{attach_mode}:{device}:12")
            if server.of or attach_mode not in server.attach_modes:
                assert option[1] in _is_refused(*option)
                continue
            assert "root part" in _run(*option, "--energy", "none").stderr
            for fact, largest in (
                server.facts.items() if attach_mode == server.attach_modes[0] else ()
            ):
                assert "root part" in _run(*option, "--fact", f"1:{fact}:{largest}").stderr
                refused = _is_refused(*option, "--fact", f"1:{fact}:{largest + 1}")
                assert f"{largest + 1}'" in refused


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [TRACER, *arguments], capture_output=True, text=True, check=False, timeout=60
    )


def _is_refused(*arguments: str) -> str:
    done = _run(*arguments)
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert done.stderr.startswith("qjoule-tracer: ")
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith("see --help\n")
    return done.stderr


def test_bad_values_are_refused() -> None:
    for option, values in BAD.items():
        for value in values:
            expected = f"bad value '{value}' for {option.removeprefix('--')}"
            assert expected in _is_refused(option, value)
    for option, values in BAD_OF_A_SERVER.items():
        for value in values:
            assert f"'{value}'" in _is_refused(*SERVER, option, value)
    for option in (*BAD, *FREE):
        assert f"no value given for '{option}'" in _is_refused(option)
    for stray in ("--no-such", "-z", "stray"):
        assert f"'{stray}'" in _is_refused(stray)
    _is_refused("--only-running=yes")
    assert "running" in _is_refused(*SERVER, *("--running", "1:1") * 65)
    assert "probe" in _is_refused(*SERVER, *("--probe", "1:mysql-end:1:0x10:55") * 1000)


def test_help_names_every_option() -> None:
    done = _run("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert all(option in done.stdout for option in (*BAD, *FREE, "--verbose"))


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        *(("nonsense", "unknown energy source"), ("none:x", "write none")),
        *(("host", "write host:ROOT"), ("host:/nonexistent", "/nonexistent")),
        *(("replay:/nonexistent", "/nonexistent"), ("powercap:/nonexistent", "/nonexistent")),
        ("estimated:1,2,3", "W0,W10,W50,W100"),
    ],
)
def test_an_energy_source_that_cannot_be_had(spec: str, reason: str) -> None:
    done = _run("--energy", spec)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert reason in done.stderr


def test_without_a_root_part_or_with_a_terminal_it_says_so() -> None:
    done = _run("--energy", "none")
    assert done.returncode == 1
    assert done.stderr == "qjoule-tracer: no root part to ask: run it through `qjoule`\n"
    command = ["script", "-qec", f"{shlex.quote(str(TRACER))} --energy none", "/dev/null"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "the stream is binary" in done.stdout
