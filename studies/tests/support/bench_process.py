# SPDX-License-Identifier: Apache-2.0
"""`qjoule bench` as a process, with a workload that needs no server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from small_workload import ALONE

SUPPORT = Path(__file__).resolve().parent
PLAN = """\
workload = "{workload}"
target = {{flavour = "redis", port = 1}}
options = {{file = "{file}", seconds = {seconds}, fails = "{fails}"}}
factors = {{level = [1, 2]}}
replications = 2
control = {{settle = "off"}}
record = {{without_energy = true}}
"""


class Bench:
    """A study of four runs in a temporary directory."""

    def __init__(self, directory: Path) -> None:
        self.plan = directory / "plan.toml"
        self.pids = directory / "pids"
        self.study = directory / "study"

    def write(self, seconds: float = 0, fails: str = "") -> None:
        text = PLAN.format(workload=ALONE, file=self.pids, seconds=seconds, fails=fails)
        self.plan.write_text(text)

    def start(self, **more: Any) -> subprocess.Popen[str]:
        """`more`: of `subprocess.Popen`."""
        environment = {**os.environ, "PYTHONPATH": _with_support(), **more.pop("env", {})}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | more
        return subprocess.Popen(
            [sys.executable, "-m", "qjoule", "bench", str(self.plan), "-o", str(self.study)],
            text=True,
            env=environment,
            **pipes,
        )

    def run(self) -> tuple[int, str]:
        """The exit code, and what it wrote to stderr."""
        process = self.start()
        out, words = process.communicate(timeout=120)
        assert out == ""
        return process.returncode, words

    def clients(self) -> list[int]:
        """The pids of the clients so far."""
        return list(map(int, self.pids.read_text().split())) if self.pids.exists() else []

    def runs(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.study / "runs.jsonl").read_text().splitlines()]


def _with_support() -> str:
    return os.pathsep.join(filter(None, (str(SUPPORT), os.environ.get("PYTHONPATH"))))
