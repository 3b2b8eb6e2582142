# SPDX-License-Identifier: Apache-2.0
"""`qjoule physical`, plain and `--full`, on a package of known power."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from qjoule_studies.physical.kit.document import KINDS, Load, parse
from qjoule_studies.servers.process import PREFIX
from tracing.animated_rapl import animated_rapl
from tracing.recording import QJOULE

WAIT_S = 240.0
IDLE_W, SHARED_W, CPU_W = 30.0, 12.0, 9.0

pytestmark = [pytest.mark.root, pytest.mark.server]


def directories() -> set[Path]:
    own = {Path("/tmp"), Path(tempfile.gettempdir())}
    return {path for place in own for path in place.glob(f"{PREFIX}*")}


@contextmanager
def nothing_left() -> Iterator[None]:
    before = directories()
    yield
    assert directories() <= before


def physical(*options: str) -> subprocess.Popen[str]:
    command = [QJOULE, "physical", "--rounds", "3", *options]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    )


def most_w() -> float:
    """What the machine draws at most, with an allowance of one CPU."""
    return IDLE_W + SHARED_W + ((psutil.cpu_count() or 1) + 1) * CPU_W


def test_on_a_package_of_known_power() -> None:
    """The verdict may be `cannot tell`, because other work disturbs it; figures must be right."""
    with nothing_left(), animated_rapl(IDLE_W, SHARED_W, CPU_W) as rapl:
        process = physical("--seconds", "1", "--energy", rapl.option, "--json")
        output, messages = process.communicate(timeout=WAIT_S)
    assert output, messages
    printed = json.loads(output)
    assert process.returncode == (0 if printed["verdict"] == "agrees" else 1)
    source = {"name": "powercap", "grade": "measured", "main_domain": "package"}
    assert printed["energy_source"] == source
    assert len(printed["measured"]) == 3
    both = min(psutil.cpu_count() or 1, 2)
    for round_ in printed["measured"]:
        # One load keeps one CPU busy, and both together two, whatever else runs.
        for name, cpus in (("alone_a_w", 1), ("alone_b_w", 1), ("together_w", both)):
            assert IDLE_W + SHARED_W + cpus * 0.5 * CPU_W < round_[name] < most_w()
        for name in ("split_a", "split_b", "alone_a_calls_per_s", "together_b_calls_per_s"):
            assert round_[name] > 0
    assert 0.9 * IDLE_W < printed["rest_w"] < most_w()
    # R = idle + shared + whatever else kept CPUs busy in all three runs.
    residual_w = printed["residual_w"]["value"]
    assert IDLE_W + SHARED_W - 3 * CPU_W < residual_w < most_w() + 2 * CPU_W


def until(process: subprocess.Popen[str], phrase: str) -> list[str]:
    """Messages up to the one with these words; the test's own time limit ends a wait."""
    lines = []
    assert process.stderr is not None
    for line in process.stderr:
        lines.append(line)
        if phrase in line:
            return lines
    raise AssertionError("".join(lines))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ended_early_it_writes_what_there_is_and_leaves_nothing(
    number: signal.Signals, tmp_path: Path
) -> None:
    """Rest, and the loads of the first server alone, on a machine whose CPUs draw 9 W each."""
    file = tmp_path / "kit.html"
    with nothing_left(), animated_rapl(IDLE_W, SHARED_W, CPU_W) as rapl:
        options = ("--full", "--seconds-per-run", "1", "-o", str(file))
        process = physical(*options, "--energy", rapl.option)
        lines = until(process, "mariadb bursts;")
        family = psutil.Process(process.pid).children(recursive=True)
        lines += until(process, "round 1 of 3")
        process.send_signal(number)
        output, messages = process.communicate(timeout=WAIT_S)
        assert process.returncode == 128 + number, messages
        assert "Traceback" not in messages
        assert "not complete" in output
        _, alive = psutil.wait_procs(family, timeout=60)
        assert not alive
    assert any("in all; Ctrl-C ends it" in line for line in lines)
    document = parse(file.read_bytes())
    assert not document.complete
    assert (document.energy.source, document.energy.given) == ("powercap", True)
    assert document.loads[:3] == tuple(Load("mariadb", kind) for kind in KINDS)
    assert {load.server for load in document.loads[3:]} <= {"postgres", "redis"}
    assert all(0.9 * IDLE_W < run.power_w < most_w() for run in document.runs)
    assert all(part.calls_per_s > 0 for run in document.runs for part in run.parts)
    for word in (os.uname().nodename, str(tmp_path), "BENCHMARK", "root@"):
        assert word not in file.read_text("utf-8")
