# SPDX-License-Identifier: Apache-2.0
"""One run of a client, recorded or not, in processes that end with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Protocol

from qjoule.api import QjouleError
from qjoule_studies.client import ClientReport, Job, read_answer
from qjoule_studies.plan import Recording
from qjoule_studies.targets import NOBODY, ProcessIdentity, identity_of

CUT_SHORT = "the run was cut short"
_END_S = 60.0
_LOOK_S = 0.5  #: how often it is looked whether the server lives
_GRACE_S = 3.0  #: for a client to say how it saw the server end
_WORDS_MAX = 1 << 16
_TRACING = b"qjoule: tracing"
_CLIENT = (sys.executable, "-P", "-m", "qjoule_studies.client")


class RunFailed(QjouleError):
    """The client or the recorder failed; the message says why."""


class NotRecorded(RunFailed):
    """The recorder did not begin: it may never on this machine."""


class Runs(Protocol):
    """Runs a client once."""

    def __call__(self, job: Job, pid: int, trace: Path, limit_s: float) -> ClientReport:
        """
        Args:
            pid: of the server.
            trace: where the trace goes, if there is one.
            limit_s: after this the run is ended.

        Raises:
            RunFailed: there is no outcome, or no whole trace.
        """


def unrecorded(job: Job, pid: int, trace: Path, limit_s: float) -> ClientReport:  # noqa: ARG001 (as Runs)
    """Runs the client alone."""
    return _run(_CLIENT, job, identity_of(pid), limit_s, recorded=False)


def recorded(how: Recording) -> Runs:
    """Runs the client beside `qjoule record`; the trace is whole when this returns.

    Raises `QjouleError` where this user cannot record at all.
    """
    prefix = _as_root()

    def run(job: Job, pid: int, trace: Path, limit_s: float) -> ClientReport:
        record = [*prefix, sys.executable, "-m", "qjoule", "record", "-o", str(trace.absolute())]
        record += ["--pid", str(pid), "--energy", how.energy, *how.options, "--", *_CLIENT]
        return _run(record, job, identity_of(pid), limit_s, recorded=True)

    return run


def _as_root() -> list[str]:
    if os.geteuid() == 0:
        return []
    sudo = ["sudo", "-n"]
    with suppress(OSError):
        if not subprocess.run(
            [*sudo, "true"], check=False, capture_output=True, stdin=subprocess.DEVNULL
        ).returncode:
            return sudo
    raise QjouleError(
        "recording needs root: run it with sudo, or leave the joules out with --without-energy"
    )


def _run(
    command: Sequence[str], job: Job, server: ProcessIdentity, limit_s: float, *, recorded: bool
) -> ClientReport:
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as messages:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=answer,
            stderr=messages,
            start_new_session=True,  # Ctrl-C is for us: we end both, in order
        )
        try:
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # it has ended, and says why
                process.stdin.write(job.to_line())
                process.stdin.flush()
            code = _wait(process, server, limit_s)
        finally:
            _end(process)
        return _judged(code, _read(answer), _read(messages), recorded=recorded)


def _wait(process: subprocess.Popen[bytes], server: ProcessIdentity, limit_s: float) -> int:
    """Returns a client's exit code. It may not retry for long after its server has ended."""
    deadline = time.monotonic() + limit_s
    why = f"it lasted longer than {limit_s:g} s (limit_s), and was ended"
    while (left_s := deadline - time.monotonic()) > 0:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(min(left_s, _LOOK_S))
        if server.ended:
            deadline, why = min(deadline, time.monotonic() + _GRACE_S), CUT_SHORT
            server = NOBODY
    raise RunFailed(why)


def _judged(code: int, answer: bytes, messages: bytes, *, recorded: bool) -> ClientReport:
    report = read_answer(answer)
    last = _last_line(messages)
    if recorded and _TRACING not in messages:
        raise NotRecorded(last or f"the recorder ended with {_ended(code)}")
    if isinstance(report, str):
        raise RunFailed(
            report or f"the client gave no answer ({_ended(code)}): {last or 'no word'}"
        )
    if code:
        raise RunFailed(f"the recording failed ({_ended(code)}): {last or 'no word'}")
    return report


def _ended(code: int) -> str:
    with suppress(ValueError):
        return signal.Signals(-code).name
    return f"exit code {code}"


def _read(file: IO[bytes]) -> bytes:
    """The end of a file that others have written."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - _WORDS_MAX, 0) if size > _WORDS_MAX else 0)
    return file.read()


def _last_line(messages: bytes) -> str:
    lines = messages.decode(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("qjoule: ").strip() if lines else ""


def _end(process: subprocess.Popen[bytes]) -> None:
    """The client ends when its standard input does, and the recorder with it."""
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        with suppress(OSError):  # not ours to signal, where sudo has started it
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
