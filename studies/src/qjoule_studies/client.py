# SPDX-License-Identifier: Apache-2.0
"""The process that runs a workload once, so that the client's cost is separate from the study's.

`qjoule record … -- PYTHON -m qjoule_studies.client` starts it as the user who called `sudo`. This
user may not be able to read or write the study's directory, so the job comes on standard input as a
line of JSON, and the outcome goes to standard output. So no file contains a password. When standard
input ends, the client ends with everything that it started, so nothing is left whatever happens to
the study's process.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from types import FrameType
from typing import Any

from qjoule.api import QjouleError
from qjoule.api.command import read_as
from qjoule_studies.workload import Latencies, Outcome, Target, Value
from qjoule_studies.workloads import workload

ABANDONED = 3  #: exit code: the study's process is gone
_CLEAR_S = 5.0  #: for clearing up, then


@dataclass(frozen=True)
class Job:
    """The workload that a client runs, and its options."""

    workload: str
    target: Target
    options: Mapping[str, Value]

    def to_line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"


@dataclass(frozen=True)
class ClientReport:
    """What a client reports about its run. Times are CLOCK_MONOTONIC, as in traces."""

    outcome: Outcome
    begin_ns: int
    end_ns: int


def main() -> int:
    """Runs the job of standard input; 0, or 1 where it failed and the reason was written."""
    answer = os.dup(1)
    os.dup2(2, 1)  # keeps drivers' prints out of the answer
    with suppress(OSError):  # it leads a group already
        os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, _stop)
    job = json.loads(_line())
    threading.Thread(target=_end_with_the_study, daemon=True).start()
    report, code = _ran(job), 0
    if "problem" in report:
        code = 1
    os.write(answer, json.dumps(report).encode() + b"\n")
    return code


def read_answer(text: bytes) -> ClientReport | str:
    """What a client wrote: its outcome, or why it failed. Empty: it was ended before writing."""
    try:
        report = json.loads(text)
        if problem := report.get("problem"):
            return str(problem)
        outcome = dict(report["outcome"])
        commands = {
            name: read_as(Latencies, of, "the client's answer")
            for name, of in outcome.pop("commands").items()
        }
        reported = Outcome(
            operations=int(outcome["operations"]),
            errors=int(outcome["errors"]),
            wall_s=float(outcome["wall_s"]),
            client=str(outcome["client"]),
            commands=commands,
            notes=tuple(map(str, outcome["notes"])),
        )
        return ClientReport(reported, int(report["begin_ns"]), int(report["end_ns"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""


def _ran(job: dict[str, Any]) -> dict[str, Any]:
    try:
        work, target = workload(job["workload"]), Target(**job["target"])
        begin_ns = time.monotonic_ns()
        outcome = work.run(target, job["options"])
        end_ns = time.monotonic_ns()
    except QjouleError as error:
        return {"problem": str(error)}
    except Exception as error:  # a driver's own: the run has failed, the study has not
        return {"problem": in_words(error)}
    return {"outcome": asdict(outcome), "begin_ns": begin_ns, "end_ns": end_ns}


def in_words(error: Exception) -> str:
    """An unexpected error, in one line."""
    if isinstance(error, QjouleError):
        return str(error)
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _line() -> bytes:
    """The first line of standard input."""
    line = b""
    while not line.endswith(b"\n") and (read := os.read(0, 1 << 16)):
        line += read
    return line


def _end_with_the_study() -> None:
    # Not sys.stdin: at exit the interpreter would wait for the thread that reads it.
    while os.read(0, 1 << 16):
        pass
    os.killpg(0, signal.SIGTERM)  # us, and a program that runs the operations
    time.sleep(_CLEAR_S)
    os.killpg(0, signal.SIGKILL)


def _stop(_number: int, _frame: FrameType | None) -> None:
    """Unwinds the workload, which clears up; once."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(ABANDONED)


if __name__ == "__main__":
    sys.exit(main())
