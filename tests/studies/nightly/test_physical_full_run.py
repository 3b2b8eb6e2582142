# SPDX-License-Identifier: Apache-2.0
"""`qjoule doctor --physical --full` on real servers and a package of known power, ended early."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from qjoule.physical.kit.document import KINDS, Load, Run, parse
from qjoule.servers.mysql.throwaway import PARENT
from qjoule.studies.servers.process import PREFIX
from tracing.animated_rapl import animated_rapl
from tracing.recording import QJOULE

TRACER = Path(sys.executable).parent / "qjoule-tracer"
WAIT_S = 240.0
IDLE_W, SHARED_W, CPU_W = 30.0, 12.0, 9.0

pytestmark = [
    pytest.mark.root,
    pytest.mark.server,
    pytest.mark.skipif(not TRACER.exists(), reason=f"{TRACER} is not there: run 'make build'"),
]


def directories() -> set[Path]:
    own = {Path(PARENT), Path(tempfile.gettempdir())}
    names = ("qjoule-physical-*", f"{PREFIX}*")
    return {path for place in own for name in names for path in place.glob(name)}


@contextmanager
def nothing_left() -> Iterator[None]:
    before = directories()
    yield
    assert directories() <= before


def full(*options: str) -> subprocess.Popen[str]:
    command = [QJOULE, "doctor", "--physical", "--full", "--rounds", "3", *options]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    )


def _until(process: subprocess.Popen[str], words: str) -> list[str]:
    """Messages up to the one with these words; the test's own time limit ends a wait."""
    said = []
    assert process.stderr is not None
    for line in process.stderr:
        said.append(line)
        if words in line:
            return said
    raise AssertionError("".join(said))


def test_ended_early_it_writes_what_there_is_and_leaves_nothing(tmp_path: Path) -> None:
    """Rest, and the loads of the first server alone, on a machine whose CPUs draw 9 W each."""
    file = tmp_path / "kit.html"
    with nothing_left(), animated_rapl(IDLE_W, SHARED_W, CPU_W) as rapl:
        process = full("--seconds-per-run", "1", "--energy", rapl.option, "-o", str(file))
        said = _until(process, "mariadb bursts;")
        family = psutil.Process(process.pid).children(recursive=True)
        said += _until(process, "round 1 of 3")
        process.send_signal(signal.SIGINT)
        output, messages = process.communicate(timeout=WAIT_S)
        assert process.returncode == 128 + signal.SIGINT, messages
        assert "Traceback" not in messages
        assert "not complete" in output
        _, alive = psutil.wait_procs(family, timeout=60)
        assert not alive
    assert any("in all; Ctrl-C ends it" in line for line in said)
    found = parse(file.read_bytes())
    assert not found.complete
    assert found.energy.source == "powercap"
    assert found.energy.given
    assert found.loads[:3] == tuple(Load("mariadb", kind) for kind in KINDS)
    assert {load.server for load in found.loads[3:]} <= {"postgres", "redis"}
    _runs_are_as_the_machine_is(found.runs)
    for word in (os.uname().nodename, str(tmp_path), "BENCHMARK", "root@"):
        assert word not in file.read_text("utf-8")


def _runs_are_as_the_machine_is(runs: tuple[Run, ...]) -> None:
    most_w = IDLE_W + SHARED_W + (psutil.cpu_count() or 1) * CPU_W
    rest, computing, memory, bursts = runs[:4]
    for run in (rest, computing, memory, bursts):
        assert 0.9 * IDLE_W < run.power_w < most_w + CPU_W
    assert not rest.parts
    for run in (computing, memory, bursts):
        (part,) = run.parts
        assert part.calls_per_s > 0
        assert 0 < part.energy_w < SHARED_W + 2 * CPU_W
        assert part.low_w <= part.energy_w <= part.high_w
        assert part.client_w > 0
    assert computing.parts[0].energy_w > bursts.parts[0].energy_w
    assert bursts.parts[0].calls_per_s > 10 * computing.parts[0].calls_per_s
