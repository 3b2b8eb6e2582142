# SPDX-License-Identifier: Apache-2.0
"""What is attached to the server during the measurement: nothing, empty programs, or qjoule."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from bench.overhead import empty
from bench.overhead.cpu import Watched, family

from qjoule.contract import AttachMode
from qjoule.errors import QjouleError
from qjoule.servers.attach_plan import AttachPlan
from qjoule.session.targets import plan_tracing
from qjoule_studies.servers.process import DatabaseServer, with_parent

QJOULE = Path(sys.executable).with_name("qjoule")
TRACER_NAME = "qjoule-tracer"
MODES = ("empty", "record", "live")
_START_S, _STOP_S = 30.0, 30.0
#: If this benchmark is killed, the processes it started end by themselves after this time.
_AT_MOST_S = 300


@dataclass(frozen=True)
class Subject:
    """The server under test, and how it is to be traced."""

    server: DatabaseServer
    plan: AttachPlan
    attach_mode: str
    options: tuple[str, ...] = ()  #: further ones of `qjoule record`


def subject_for(server: DatabaseServer, attach_mode: str) -> Subject:
    """This server with its attach plan and the attach mode that the plan chooses, or `attach_mode`.

    Raises:
        QjouleError: it has no such attach mode.
    """
    plan = plan_tracing(
        [server.pid], None if attach_mode == "auto" else AttachMode[attach_mode.upper()]
    )
    return Subject(server, plan, plan.traced[0].choice.attach_mode.name.lower())


@dataclass
class Attached:
    """An active mode."""

    pids: tuple[int, ...] = ()
    tracer: int = 0
    reader: int = 0
    result: dict[str, object] = field(default_factory=dict)  #: known once it has ended

    @property
    def watched(self) -> Watched:
        return Watched(self.pids, self.tracer)


@contextmanager
def attached(mode: str, subject: Subject) -> Iterator[Attached]:
    """Attaches, yields once everything is attached, and detaches."""
    server_options = ["--pid", str(subject.server.pid), "--attach", subject.attach_mode]
    if mode == "empty":
        with _running(empty.command(subject.plan), "attached", "stdout") as process:
            yield Attached((process.pid,))
    elif mode == "record":
        with _trace_directory() as directory:
            arguments = [
                str(QJOULE),
                "record",
                "-o",
                str(directory / "t"),
                "-d",
                str(_AT_MOST_S),
                # The tables are made after the measurement, by whoever wants them.
                *("--convert", "later"),
                *server_options,
                *subject.options,
            ]
            with _running(arguments, "tracing", "stderr") as process:
                state = _processes_of(process.pid)
                yield state
            state.result = json.loads((directory / "t" / "meta.json").read_text())
    else:
        arguments = [str(QJOULE), "top", "-b", "-n", str(_AT_MOST_S), "--json", *server_options]
        with _running(arguments, '"', "stdout") as process:
            yield _processes_of(process.pid)


def _processes_of(pid: int) -> Attached:
    everyone = family(pid)
    tracer = next((p for p in everyone if _name(p) == TRACER_NAME), 0)
    if not tracer:
        raise QjouleError(f"process {pid} has no {TRACER_NAME}: did it end?")
    return Attached(everyone, tracer, _parent(tracer))


def _parent(pid: int) -> int:
    """The parent's pid: of a tracer, the command that reads it; of the command, the root part."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _name(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


@contextmanager
def _trace_directory() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="qjoule-bench-"))
    directory.chmod(0o711)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _running(arguments: list[str], sign: str, where: str) -> Iterator[subprocess.Popen[str]]:
    """Runs a process from when it has printed `sign` to the end of the block; then ends and reaps
    it.
    """
    process = subprocess.Popen(
        [*with_parent(), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _wait_for(process, sign, where)
        yield process
    finally:
        _end(process)
    if process.returncode not in (0, -signal.SIGINT):
        raise QjouleError(
            f"{Path(arguments[0]).name} {arguments[1]} failed: exit {process.returncode}"
        )


def _wait_for(process: subprocess.Popen[str], sign: str, where: str) -> None:
    ready = threading.Event()
    lines: list[str] = []

    def drain(stream: IO[str], looked_at: bool) -> None:
        for line in stream:
            if looked_at and sign in line:
                ready.set()
            elif not looked_at or not ready.is_set():
                lines.append(line.strip())

    for name in ("stdout", "stderr"):
        stream = getattr(process, name)
        threading.Thread(target=drain, args=(stream, name == where), daemon=True).start()
    deadline = time.monotonic() + _START_S
    while not ready.wait(0.05):
        if process.poll() is not None or time.monotonic() > deadline:
            last = lines[-1] if lines else "no word"
            raise QjouleError(f"cannot attach: {last}")


def _end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.close()
    if _name(process.pid) != empty.LOADER.name:  # it ends with its standard input
        process.send_signal(signal.SIGINT)
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
