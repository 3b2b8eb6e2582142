# SPDX-License-Identifier: Apache-2.0
"""Starts the known loads of `qjoule calibrate`, and watches how busy the machine is."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from qjoule.errors import QjouleError
from qjoule.installed import installed_program
from qjoule.machine.steps import BESIDE, IDLE, Step, wakeup_rate

_END_SECONDS = 10.0
_PROC_STAT = Path("/proc/stat")


@dataclass(frozen=True)
class Running:
    """A running load. `exceeds_cache`: its memory is larger than the caches. `pids`: its
    processes."""

    exceeds_cache: bool
    pids: tuple[int, ...] = ()


@contextmanager
def running(step: Step) -> Iterator[Running]:
    """Runs the step's kernel in the block, which starts when every thread is ready.

    Raises `QjouleError` if it cannot be started.
    """
    if step.kernel == IDLE:
        yield Running(True)
        return
    rate = wakeup_rate(step.kernel)
    loads = [(step.kernel if rate is None else f"wakeups:{rate}", step.cpus)]
    if step.beside:
        loads.append((BESIDE, step.beside))
    with ExitStack() as stack:
        started = [stack.enter_context(_one(step, *load)) for load in loads]
        pids = tuple(pid for run in started for pid in run.pids)
        yield Running(all(run.exceeds_cache for run in started), pids)


@contextmanager
def _one(step: Step, kernel: str, on: Sequence[int]) -> Iterator[Running]:
    """Runs one program of a step. Raises `QjouleError` if it cannot start, or ends by itself."""
    cpus = ",".join(map(str, on))
    # Its own time limit is for the case that nobody is left to stop it.
    command = [str(installed_program("qjoule-load")), kernel, cpus, f"{step.seconds + 60:.0f}"]
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except OSError as error:
        raise QjouleError(f"cannot start {command[0]}: {error.strerror}") from None
    try:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        if not line:
            reason = process.stderr.read().decode("utf-8", "replace").strip()
            raise QjouleError(
                f"the load '{step.words}' did not start: {reason or 'no reason told'}"
            )
        yield Running(bool(json.loads(line)["exceeds_cache"]), (process.pid,))
        if process.poll() is not None:
            raise QjouleError(f"the load '{step.words}' ended by itself: run it again")
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):
        process.terminate()
    with process:  # closes its pipes
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()


class BusyWatch:
    """Mean number of busy CPUs since it was made, from /proc/stat in steps of 10 ms."""

    def __init__(self) -> None:
        self._begin_s, self._busy_s = time.monotonic(), self._read()

    def cpus(self) -> float:
        length_s = time.monotonic() - self._begin_s
        return max(self._read() - self._busy_s, 0.0) / length_s if length_s > 0 else 0.0

    def _read(self) -> float:
        """Seconds that all CPUs together were not idle (proc(5): fields 4 and 5 are idle)."""
        fields = _PROC_STAT.read_text().split("\n", 1)[0].split()[1:]
        ticks: Sequence[int] = [int(word) for word in fields[:8]]
        return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
