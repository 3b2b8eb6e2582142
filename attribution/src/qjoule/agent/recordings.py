# SPDX-License-Identifier: Apache-2.0
"""Starts the flight recorder beside the agent, and bounds what it saved.

It is a separate `qjoule record --keep`, which the root part starts (tracer/root/started.c) and
which makes a new directory in `--recordings`, by its default name.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from qjoule.errors import QjouleError
from qjoule.spool.files import PART, RingFiles

#: Seconds between two checks that the recorder runs, and between two starts.
CHECK_S, AGAIN_S = 1.0, 600.0
_NAME = re.compile(r"qjoule-[0-9]{8}-[0-9]{6}\.qjoule")


class Running(Protocol):
    def exit_code(self, *, wait: bool) -> int | None:
        """None: it runs."""


#: Starts the recorder. Raises `QjouleError`.
Start = Callable[[], Running]


@dataclass
class FlightRecorder:
    """`most`: how many of the saved parts are kept. `say` logs a line."""

    directory: Path
    start: Start
    most: int
    say: Callable[[str], object]
    _running: Running | None = None
    _next_check_s: float = 0.0
    _next_start_s: float = 0.0

    def tick(self, now_s: float) -> None:
        """To be called several times a second. `now_s`: by a clock without steps."""
        if now_s < self._next_check_s:
            return
        self._next_check_s = now_s + CHECK_S
        if self._running is not None:
            self._check(self._running)
        if self._running is None and now_s >= self._next_start_s:
            self._next_start_s = now_s + AGAIN_S
            self._start()

    def _check(self, running: Running) -> None:
        code = running.exit_code(wait=False)
        if code is not None:
            self._running = None
            outcome = "has ended" if not code else f"has failed (exit code {code})"
            self.say(f"recordings: the flight recorder {outcome}")

    def _start(self) -> None:
        self._remove_old()
        try:
            self._running = self.start()
        except QjouleError as error:
            self.say(f"recordings: not started: {error}")
            return
        self.say(f"recordings: a flight recorder runs in {self.directory}")

    def _remove_old(self) -> None:
        """Leaves the newest parts and one ring, which may still be needed."""
        recorders = sorted(_directories(self.directory, _NAME))
        # Part names have UTC times, those of recorders local times.
        parts = sorted(
            (part for recorder in recorders for part in _directories(recorder, PART)),
            key=lambda part: part.name,
        )
        for part in parts[: -self.most]:
            shutil.rmtree(part, ignore_errors=True)
        for recorder in recorders[:-1]:
            shutil.rmtree(RingFiles(recorder).folder, ignore_errors=True)
            with suppress(OSError):  # it has parts
                recorder.rmdir()


def _directories(where: Path, names: re.Pattern[str]) -> list[Path]:
    with suppress(OSError):
        return [path for path in where.iterdir() if names.fullmatch(path.name) and path.is_dir()]
    return []


def create_directory(directory: Path) -> Path:
    """Creates the directory if needed. Raises `QjouleError`: it is not ours."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = directory.stat()
    except OSError as error:
        raise QjouleError(f"--recordings: {directory}: {error.strerror}") from None
    if about.st_uid != os.geteuid() or about.st_mode & 0o022:
        raise QjouleError(f"--recordings: {directory} must belong to uid {os.geteuid()} alone")
    return directory
