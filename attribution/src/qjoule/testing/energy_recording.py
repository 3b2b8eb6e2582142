# SPDX-License-Identifier: Apache-2.0
"""Runs `qjoule record` beside one test, and `qjoule attribute` on the result."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ATTACH_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
_POLL_S = 0.02
_TRACING = "qjoule: tracing"  #: printed by `qjoule record` once every probe is in place


class Impossible(Exception):
    """Nothing can be recorded here; the message is the reason, on one line."""


class EnergyRecording:
    """A running recording. Use it as a context manager, which removes everything at its end."""

    def __init__(self, *options: str) -> None:
        """`options` of `qjoule record`. Raises `Impossible`."""
        self._program = _program()
        self._folder = Path(tempfile.mkdtemp(prefix="qjoule-energy-"))
        self._log = (self._folder / "log").open("w+b")
        self._trace = self._folder / "trace"
        command = [self._program, "record", "-o", str(self._trace), *options]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._log
        )
        try:
            self._wait_attached()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> EnergyRecording:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def document(self, by: str) -> dict[str, Any]:
        """Ends the recording; the JSON of its attribution, grouped by the key `by`.

        Raises `Impossible` if the recorder failed or made no trace.
        """
        self._process.send_signal(signal.SIGINT)
        try:
            code = self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise Impossible("qjoule record did not end in time") from None
        if code != 0:
            raise Impossible(f"qjoule record failed: {self._last_words()}")
        words = ["--by", by, "--format", "json", "--absolute"]  # a budget is in joules, not a share
        found = subprocess.run(
            [self._program, "attribute", str(self._trace), *words],
            capture_output=True,
            check=False,
        )
        if found.returncode != 0:
            raise Impossible(f"qjoule attribute failed: {_last_line(found.stderr)}")
        document: dict[str, Any] = json.loads(found.stdout)
        return document

    def close(self) -> None:
        """In every case ends the recorder and its tracer, and removes their files."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._log.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _wait_attached(self) -> None:
        deadline = time.monotonic() + ATTACH_TIMEOUT_S
        while _TRACING not in self._words():
            if self._process.poll() is not None:
                raise Impossible(f"qjoule record failed: {self._last_words()}")
            if time.monotonic() > deadline:
                raise Impossible("qjoule record did not attach in time")
            time.sleep(_POLL_S)

    def _words(self) -> str:
        return os.pread(self._log.fileno(), 1 << 20, 0).decode(errors="replace")

    def _last_words(self) -> str:
        return _last_line(self._words().encode())


def _program() -> str:
    if sys.platform != "linux":
        raise Impossible("recording needs Linux")
    if os.geteuid() != 0:
        raise Impossible("recording needs root: run pytest with sudo")
    beside = Path(sys.executable).with_name("qjoule")
    program = str(beside) if beside.exists() else shutil.which("qjoule")
    if program is None:
        raise Impossible("the command qjoule is not installed")
    return program


def _last_line(text: bytes) -> str:
    lines = text.decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
