# SPDX-License-Identifier: Apache-2.0
"""The whole `qjoule doctor --physical`, on a package of known power and where there is none."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from qjoule.servers.mysql.throwaway import PARENT
from tracing.animated_rapl import AnimatedRapl, animated_rapl
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
    return set(Path(PARENT).glob("qjoule-physical-*"))


def physical(*options: str) -> subprocess.Popen[str]:
    command = [QJOULE, "doctor", "--physical", "--rounds", "3", "--seconds", "1", *options]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    )


@contextmanager
def nothing_left() -> Iterator[None]:
    before = directories()
    yield
    assert directories() <= before
    servers = [p for p in psutil.process_iter(["cmdline"]) if "qjoule-physical" in _words(p)]
    assert not servers


def _words(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(process.info["cmdline"] or [])
    return ""


def test_on_a_package_of_known_power() -> None:
    """Both loads draw the same per busy CPU here.

    How busy the machine is otherwise is not under our control, so the verdict may be that it cannot
    tell. What it measured must be right.
    """
    with nothing_left(), animated_rapl(IDLE_W, SHARED_W, CPU_W) as rapl:
        process = physical("--energy", rapl.option, "--json")
        output, messages = process.communicate(timeout=WAIT_S)
    assert output, messages
    found = json.loads(output)
    assert process.returncode == (0 if found["verdict"] == "agrees" else 1)
    assert found["energy_source"] == {
        "name": "powercap",
        "grade": "measured",
        "main_domain": "package",
    }
    cpus = psutil.cpu_count() or 1
    most_w = IDLE_W + SHARED_W + cpus * CPU_W
    assert len(found["measured"]) == 3
    for one in found["measured"]:
        # One load keeps one CPU busy, and both together two, whatever else runs.
        assert IDLE_W + SHARED_W + 0.5 * CPU_W < one["alone_a_w"] < most_w + CPU_W
        assert IDLE_W + SHARED_W + 0.5 * CPU_W < one["alone_b_w"] < most_w + CPU_W
        assert IDLE_W + SHARED_W + min(cpus, 2) * 0.5 * CPU_W < one["together_w"] < most_w + CPU_W
        assert one["split_a"] > 0
        assert one["split_b"] > 0
        assert one["alone_a_calls_per_s"] > 0
        assert one["together_b_calls_per_s"] > 0
    assert 0.9 * IDLE_W < found["rest_w"] < most_w + CPU_W
    _residual_is_what_is_drawn_once(found, rapl)


def _residual_is_what_is_drawn_once(found: dict[str, dict[str, float]], rapl: AnimatedRapl) -> None:
    """R = idle + shared + whatever else kept CPUs busy in all three runs."""
    residual_w = found["residual_w"]["value"]
    assert residual_w > rapl.idle_w + rapl.shared_w - 3 * rapl.cpu_w
    assert rapl.totals is not None
    others_w = rapl.cpu_w * (psutil.cpu_count() or 1)
    assert residual_w < rapl.idle_w + rapl.shared_w + others_w + 3 * rapl.cpu_w


def test_an_estimate_is_not_put_to_the_test() -> None:
    with nothing_left():
        process = physical("--energy", "estimated:10,20,30,40")
        output, messages = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    assert not output
    assert "cannot test" in messages.splitlines()[-1]
    assert "estimated" in messages.splitlines()[-1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_when_it_is_stopped(number: signal.Signals) -> None:
    with nothing_left(), animated_rapl(IDLE_W, SHARED_W, CPU_W) as rapl:
        process = physical("--energy", rapl.option)
        family = _once_it_records(process)
        process.send_signal(number)
        messages = process.communicate(timeout=WAIT_S)[1]
        assert process.returncode == 128 + number
        assert "Traceback" not in messages
        _, alive = psutil.wait_procs(family, timeout=60)
        assert not alive


def _once_it_records(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """All its processes, as soon as server and recorder are among them."""
    deadline = time.monotonic() + 60
    while True:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, "it did not begin to record"
        family = psutil.Process(process.pid).children(recursive=True)
        names = set()
        for one in family:
            with suppress(psutil.Error):
                names.add(one.name())
        if {"mariadbd", "qjoule-tracer"} <= names:
            return family
        time.sleep(0.05)
