# SPDX-License-Identifier: Apache-2.0
"""`qjoule bench` as a process, with a workload that needs no server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import redis

from qjoule.errors import QjouleError, UsageError
from qjoule_studies.workload import Latencies, Outcome, Target, Value

NAME = "bench_process:Small"
ALONE = "bench_process:Alone"


class Small:
    """Executes `command` (set or get) `operations` times on one connection."""

    name = "small"
    flavours = frozenset({"redis"})
    defaults: Mapping[str, Value] = {"command": "set", "operations": 2000}

    def prepare(self, target: Target, options: Mapping[str, Value]) -> None:
        if options["command"] not in ("set", "get"):
            raise UsageError(f"there is no command {options['command']!r}: use set or get")
        try:
            with redis.Redis(unix_socket_path=target.socket) as client:
                client.set("prepared", 1)
        except redis.RedisError as error:
            raise QjouleError(f"the server refuses: {error}") from error

    def run(self, target: Target, options: Mapping[str, Value]) -> Outcome:
        operations = int(options["operations"])
        with redis.Redis(unix_socket_path=target.socket) as client:
            begin_ns = time.monotonic_ns()
            for number in range(operations):
                if options["command"] == "set":
                    client.set(f"key:{number}", "x" * 100)
                else:
                    client.get(f"key:{number}")
            wall_ns = time.monotonic_ns() - begin_ns
        mean_ns = wall_ns / max(operations, 1)
        latencies = Latencies(operations, mean_ns, mean_ns, mean_ns, mean_ns)
        command = str(options["command"])
        return Outcome(operations, 0, wall_ns / 1e9, "small", {command: latencies})


def file_lines(options: Mapping[str, Value]) -> list[str]:
    return Path(str(options["file"])).read_text().splitlines()


class Alone:
    """Waits for `seconds`; needs no server. Its processes write their pids as lines to `file`."""

    name = "alone"
    flavours = frozenset({"redis"})
    defaults: Mapping[str, Value] = {"seconds": 0.0, "file": "", "fails": "", "level": 1}

    def prepare(self, target: Target, options: Mapping[str, Value]) -> None:
        pass

    def run(self, target: Target, options: Mapping[str, Value]) -> Outcome:  # noqa: ARG002
        print("a driver's chatter")
        with Path(str(options["file"])).open("a") as file:
            file.write(f"{os.getpid()}\n")
        if options["fails"] == "driver":
            raise redis.ConnectionError("reset\nby \x1b[31mpeer")
        if options["fails"] == "ends":
            os._exit(7)
        if options["fails"] == "child":
            with (
                subprocess.Popen(["sleep", "600"]) as child,
                Path(str(options["file"])).open("a") as file,
            ):
                file.write(f"{child.pid}\n")
                file.flush()
                child.wait()
        if options["fails"] == "second" and len(file_lines(options)) == 2:
            time.sleep(600)
        time.sleep(float(options["seconds"]))
        return Outcome(10, 1, 0.5, "alone", notes=("one error was planned",))


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
        out, messages = process.communicate(timeout=120)
        assert out == ""
        return process.returncode, messages

    def clients(self) -> list[int]:
        """The pids of the clients so far."""
        return list(map(int, self.pids.read_text().split())) if self.pids.exists() else []

    def runs(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.study / "runs.jsonl").read_text().splitlines()]


def _with_support() -> str:
    return os.pathsep.join(filter(None, (str(SUPPORT), os.environ.get("PYTHONPATH"))))
