# SPDX-License-Identifier: Apache-2.0
"""`perf` beside a test's load, run by the commands that `qjoule import perf` prints."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tracing.recording import qjoule

STARTS_S = 60.0
SECONDS = 120  #: at most
TRACEFS = Path("/sys/kernel/tracing")


@dataclass
class PerfRecording:
    """`data` and `options` of the import are set when the block has ended."""

    directory: Path
    script: str

    @property
    def data(self) -> Path:
        return self.directory / "qjoule-perf.data"

    def options(self) -> list[str]:
        """The options for the servers, as in the printed import command."""
        (line,) = (line for line in self.script.splitlines() if line.startswith("qjoule import"))
        words = line.split()
        return [w for at, w in enumerate(words) if "--server" in (w, words[at - 1])]


@contextmanager
def perf_recording(directory: Path, pid: int) -> Iterator[PerfRecording]:
    """Records the block with the printed script, without its last line (the import)."""
    printed = qjoule("import", "perf", "--print-commands", f"--pid={pid}", f"--seconds={SECONDS}")
    assert printed.returncode == 0, printed.stderr
    of = PerfRecording(directory, printed.stdout)
    was_mounted = TRACEFS.is_mount()
    lines = [line for line in of.script.splitlines() if not line.startswith("qjoule import")]
    process = subprocess.Popen(
        ["bash", "-e", "-c", "\n".join(lines)],
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        workload = _workload(process)
        yield of
        workload.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=STARTS_S)
        assert of.data.exists(), said.decode(errors="replace")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert process.stderr is not None
        process.stderr.close()
        _remove_probes(lines)
        if not was_mounted:  # others may use the name by now
            subprocess.run(["umount", str(TRACEFS)], capture_output=True, check=False)


def _workload(process: subprocess.Popen[bytes]) -> psutil.Process:
    """The `sleep` that perf runs once it records."""
    deadline = time.monotonic() + STARTS_S
    while time.monotonic() < deadline:
        assert process.poll() is None, process.stderr and process.stderr.read().decode()
        for child in psutil.Process(process.pid).children(recursive=True):
            if child.name() == "sleep":
                return child
        time.sleep(0.02)
    raise AssertionError("perf did not start")


def _remove_probes(lines: list[str]) -> None:
    """Also after the script was killed."""
    events = TRACEFS / "uprobe_events"
    if not events.exists():
        return
    for line in lines:
        if line.startswith("echo -:"):
            name = line.split()[1].removeprefix("-:")
            if name in events.read_text():
                file = os.open(events, os.O_WRONLY | os.O_APPEND)
                os.write(file, f"-:{name}\n".encode())
                os.close(file)
