# SPDX-License-Identifier: Apache-2.0
"""Reads an external power meter beside the machine's own counters, from a program or a file.

    meter = start_meter("plug-meter --watch", file=None)   # before this process is confined
    ...
    readings = meter.readings()                            # while the trace is written

The program is a child of this process and has no root's rights. Its output is parsed here.
"""

from __future__ import annotations

import os
import select
import shlex
import shutil
import stat
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

from qjoule.errors import QjouleError, UsageError
from qjoule.session.meter_lines import MAX_LINE, UNIT_J, MeterLines, Reading
from qjoule.trace.meta import MeterInfo

_READ_BYTES = 1 << 16
_MAX_WAITING = 1 << 20  #: most readings that wait: 12 days at one a second
_POLL_S = 0.05  #: between checks whether a file has grown


class Meter:
    """Reads a meter's lines in its own thread, to record the time at which each arrives."""

    def __init__(self, name: str, descriptor: int, program: subprocess.Popen[bytes] | None) -> None:
        self._name, self._descriptor, self._program = name, descriptor, program
        self._grows = program is None and stat.S_ISREG(os.fstat(descriptor).st_mode)
        self._lines = MeterLines()
        self._readings: list[Reading] = []
        self._dropped = 0
        self._lock = threading.Lock()
        self._closed = False
        self.ended = False  #: the program's output has ended
        self.count = 0  #: readings so far
        self._thread = threading.Thread(target=self._read, name="meter", daemon=True)
        self._thread.start()

    @property
    def bad(self) -> int:
        """Number of lines so far that were not readings."""
        return self._lines.rubbish + self._dropped

    @property
    def info(self) -> MeterInfo | None:
        """The meter's entry in meta.json; None before the first reading."""
        if self._lines.is_power is None or not self.count:
            return None
        kind = "power" if self._lines.is_power else "counter"
        return MeterInfo(self._name, kind, UNIT_J[self._lines.is_power])

    @property
    def summary(self) -> str:
        """Returns a line: number of readings and of bad lines, and whether it ended early."""
        bad = f", {self.bad:,} lines that are none" if self.bad else ""
        ended = ", and ended before the recording" if self.ended else ""
        return f"meter {self._name}: {self.count:,} readings{bad}{ended}"

    def readings(self) -> list[Reading]:
        """Returns the readings since the last call."""
        with self._lock:
            readings, self._readings = self._readings, []
        return readings

    def close(self) -> None:
        """Stops reading, and ends the program; one that we may not signal sees its pipe closed."""
        self._closed = True
        self._thread.join(1)
        os.close(self._descriptor)
        if self._program is not None:
            with suppress(OSError):
                self._program.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._program.wait(1)

    def _read(self) -> None:
        rest = b""
        while not self._closed:
            try:
                if not select.select([self._descriptor], [], [], _POLL_S)[0]:
                    continue
                content = os.read(self._descriptor, _READ_BYTES)
            except OSError:
                content = b""
            t_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            if content:
                *lines, rest = (rest + content).split(b"\n")
                self._add(lines, t_ns)
                rest = rest[: MAX_LINE + 1]
            elif self._grows:
                time.sleep(_POLL_S)
            else:
                self._add([rest] if rest else [], t_ns)
                self.ended = True
                return

    def _add(self, lines: list[bytes], t_ns: int) -> None:
        readings = [reading for line in lines if (reading := self._lines.read(line, t_ns))]
        with self._lock:
            room = _MAX_WAITING - len(self._readings)
            self._readings += readings[:room]
        self._dropped += len(readings) - len(readings[:room])
        self.count += len(readings)


def start_meter(command: str | None, file: Path | None) -> Meter | None:
    """Starts the program or opens the file; None if neither is given.

    A file is read from its end on, since earlier lines predate the trace. A pipe is read from its
    beginning.

    Raises:
        UsageError: both are given, or no program is named.
        QjouleError: the program does not start, or the file cannot be read.
    """
    if command is not None and file is not None:
        raise UsageError("--meter and --meter-file: give one of them")
    if file is not None:
        return Meter(file.name, _opened(file), None)
    if command is None:
        return None
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--meter '{command}': {error}") from None
    if not words:
        raise UsageError("--meter: name a program")
    if os.geteuid() == 0:
        raise QjouleError("--meter does not run a program as root: use --meter-file")
    setpriv = shutil.which("setpriv")  # ends the program when we end
    before = [setpriv, "--pdeathsig", "TERM", "--"] if setpriv else []
    if shutil.which(words[0]) is None:
        raise QjouleError(f"--meter: there is no program {words[0]}")
    try:
        program = subprocess.Popen(
            [*before, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0
        )
    except OSError as error:
        raise QjouleError(f"--meter: {words[0]}: {error.strerror}") from None
    assert program.stdout is not None
    with program.stdout as output:
        return Meter(Path(words[0]).name, os.dup(output.fileno()), program)


def _opened(file: Path) -> int:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise QjouleError(f"--meter-file {file}: {error.strerror}") from None
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        os.lseek(descriptor, 0, os.SEEK_END)
    elif not (stat.S_ISFIFO(kind) or stat.S_ISCHR(kind)):
        os.close(descriptor)
        raise QjouleError(f"--meter-file {file}: neither a file, a pipe nor a terminal line")
    return descriptor
