# SPDX-License-Identifier: Apache-2.0
"""Records servers with `qjoule record` while a block runs; the mean power of a recording in W."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from qjoule.api import QjouleError
from qjoule.api.attribution import recorded
from qjoule.api.model import main_domain
from qjoule.api.traces import Trace

#: Left out at the start of a load: clocks, fans and caches take a moment.
SETTLE_NS = 300_000_000


def mean_power_w(trace: Trace, t0_ns: int, t1_ns: int) -> float:
    """Mean power of the main domain over the windows within this span of time.

    Raises `QjouleError` if there is no such window with known energy.
    """
    energy = recorded.windows(trace)
    main = main_domain([series.domain for series in energy.series])
    mine = [i for i, series in enumerate(energy.series) if series.domain == main]
    start_ns, end_ns = energy.boundaries_ns[:-1], energy.boundaries_ns[1:]
    inside = (start_ns >= t0_ns) & (end_ns <= t1_ns) & energy.known[mine].all(axis=0)
    if not mine or not inside.any():
        raise QjouleError("a recording has no energy readings: see 'qjoule doctor'")
    total_nj = int(energy.energy_nj[mine][:, inside].sum())
    return total_nj / int(np.sum(end_ns[inside] - start_ns[inside]))


_ATTACH_S = 60.0
_STOP_S = 60.0
_LONGEST_S = 600.0  #: it ends by itself if we are killed
_ATTACHED = "qjoule: tracing"


@contextmanager
def recording(directory: Path, server_pids: Sequence[int], energy: str) -> Iterator[None]:
    """Records what the block does into `directory`; afterwards the trace is complete.

    Only these servers are traced.

    Raises `QjouleError` with the recorder's own message if it fails.
    """
    process = subprocess.Popen(
        [*_ends_with_us(), *command(directory, server_pids, energy)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C must reach only us: we end it cleanly
    )
    messages = _Messages(process)
    try:
        if not messages.attached.wait(_ATTACH_S) or messages.ended:
            raise QjouleError(f"the recording did not start: {messages.last(process)}")
        yield
        process.send_signal(signal.SIGINT)
        if process.wait(_STOP_S):
            raise QjouleError(f"the recording failed: {messages.last(process)}")
    except subprocess.TimeoutExpired:
        raise QjouleError("the recording did not end: run it again") from None
    finally:
        _end(process)
        messages.join()


def command(directory: Path, server_pids: Sequence[int], energy: str) -> list[str]:
    """Words of the recorder's command line."""
    record = [sys.executable, "-m", "qjoule", "record", "-o", str(directory)]
    # What was learned elsewhere is no part of the test.
    record += ["--memory", "none", "--energy", energy, "--duration", str(_LONGEST_S)]
    return record + [word for pid in server_pids for word in ("--pid", str(pid))]


class _Messages(threading.Thread):
    """Reads the recorder's messages; `attached` is set when it traces, or when it has ended."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        super().__init__(name="qjoule-recorder-words", daemon=True)
        assert process.stderr is not None
        self._stream = process.stderr
        self._lines: list[str] = []
        self.attached = threading.Event()
        self.ended = False
        self.start()

    def run(self) -> None:
        for line in self._stream:
            self._lines.append(line.strip())
            if line.startswith(_ATTACHED):
                self.attached.set()
        self.ended = not self.attached.is_set()
        self.attached.set()

    def last(self, process: subprocess.Popen[str]) -> str:
        """The last line, without the program's name."""
        with suppress(subprocess.TimeoutExpired):
            process.wait(1)
        return self._lines[-1].removeprefix("qjoule: ") if self._lines else "it said nothing"


def _ends_with_us() -> list[str]:
    """Command prefix: makes the kernel end the recorder when this process dies.

    The setting is lost when the recorder gives up root (prctl(2)), hence `_LONGEST_S`.
    """
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig=TERM", "--"] if setpriv else []


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_S)
    process.kill()
    process.wait()
