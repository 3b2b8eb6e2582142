# SPDX-License-Identifier: Apache-2.0
"""A study's output on a terminal, and which servers it starts."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import types
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from qjoule.commands.bench_run import run_plan
from qjoule.errors import UsageError
from qjoule.studies.plan_file import parse_plan
from qjoule.studies.runs import read_runs
from qjoule.studies.workload import Target
from small_workload import ALONE

TESTS = Path(__file__).resolve().parents[2] / "support"
REST = """\
factors: {{level: [1, 2]}}
options: {{file: {file}}}
replications: 1
control: {{settle: off}}
record: {{without_energy: true}}
"""


def test_a_terminal_has_a_bar_with_the_time_left(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        f"workload: {ALONE}\ntarget: {{flavour: redis, port: 1}}\n"
        + REST.format(file=tmp_path / "pids")
    )
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "qjoule", "bench", str(plan), "-o", str(tmp_path / "study")],
        stderr=theirs,
        stdout=subprocess.DEVNULL,
        env={
            **os.environ,
            "PYTHONPATH": str(TESTS),
            "TERM": "xterm",
            "COLUMNS": "60",
            "NO_COLOR": "1",
        },
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            read = os.read(ours, 1 << 16)
        except OSError:  # Linux's error when the other side has closed
            break
        if not read:
            break
        shown += read
    os.close(ours)
    assert process.wait() == 0, shown
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    assert "1/2" in text
    assert re.search(r"0:00:0\d", text)
    assert "\x1b[3" not in shown.decode()  # NO_COLOR
    assert max(map(len, re.split(r"[\r\n]+", text.split("runs.jsonl")[0]))) <= 130


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replaces the module that starts servers with one that starts nothing."""
    started: list[str] = []

    def start(name: str, settings: dict[str, object]) -> AbstractContextManager[Target]:
        started.append(f"{name} {settings}")
        return nullcontext(Target("redis"))

    module = types.ModuleType("qjoule.studies.servers")
    module.STARTED = {"redis": None}  # type: ignore[attr-defined]
    module.start = start  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "qjoule.studies.servers", module)
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    return started


def test_a_server_is_started_with_its_settings(servers: list[str], tmp_path: Path) -> None:
    text = f"workload: {ALONE}\nserver: redis\nsettings: {{redis: {{io: 4}}}}\n" + REST.format(
        file=tmp_path / "pids"
    )
    assert run_plan(parse_plan(text, "p.yaml"), tmp_path / "study", again=False) == 0
    assert servers == ["redis {'io': 4}"]
    assert len(read_runs(tmp_path / "study")) == 2


def test_a_server_that_nobody_starts_is_refused(servers: list[str], tmp_path: Path) -> None:
    text = f"workload: {ALONE}\nserver: oracle\n" + REST.format(file="x")
    with pytest.raises(UsageError, match="no server 'oracle' can be started: use redis"):
        run_plan(parse_plan(text, "p.yaml"), tmp_path / "study", again=False)
    assert servers == []
    assert not (tmp_path / "study").exists()
