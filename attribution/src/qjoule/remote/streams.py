# SPDX-License-Identifier: Apache-2.0
"""Standard input and output for a qjoule at the other end of `--via` (`--stdout`).

    qjoule 0.1.0        the first line
                        empty lines: signs of life, one in `ALIVE_S`
    {"schema": ...}     of `top`: a line for each snapshot (`remote.wire`)
    a tar               of `record`: the trace, once it is whole (`trace.archive`)

Who reads ends it by closing our standard input.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from typing import BinaryIO

from qjoule import __version__
from qjoule.errors import QjouleError, UsageError

ALIVE_S = 5.0
GREETING = "qjoule"


class Streams:
    """Reserves both for `--stdout`: whatever else this process prints goes to standard error."""

    def __init__(self) -> None:
        self._input, self._output = os.dup(0), os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        self._lock = threading.Lock()
        self._is_line = True  #: whether only lines were written
        if self._has_ended(0.0):
            raise UsageError("--stdout ends with standard input, which is closed: use exec -i")
        self._write(f"{GREETING} {__version__}\n".encode())

    def start(self, stop: Callable[[], object]) -> None:
        """Shows signs of life from now on. Calls `stop`, on another thread, once it is to end."""
        threading.Thread(
            target=self._live, args=(stop,), name="qjoule-streams", daemon=True
        ).start()

    def line(self, content: bytes) -> None:
        with self._lock:
            self._write(content + b"\n")

    def last(self, write: Callable[[BinaryIO], object]) -> None:
        """Has `write` write the last part of the output. Raises `QjouleError`: nobody reads it."""
        with self._lock, os.fdopen(self._output, "wb", closefd=False) as out:
            self._is_line = False
            try:
                write(out)
            except BrokenPipeError:
                raise QjouleError("not all was sent: nobody reads it") from None

    def _live(self, stop: Callable[[], object]) -> None:
        while not self._has_ended(ALIVE_S) and self._says_alive():
            pass
        stop()
        while self._says_alive():
            threading.Event().wait(ALIVE_S)

    def _has_ended(self, wait_s: float) -> bool:
        """Whether standard input has ended. Its content is ignored."""
        return bool(select.select([self._input], [], [], wait_s)[0]) and not os.read(
            self._input, 4096
        )

    def _says_alive(self) -> bool:
        """Sends an empty line. False if nobody reads it, or if `last` has begun."""
        with self._lock:
            try:
                if self._is_line:
                    self._write(b"\n")
            except OSError:
                return False
            return self._is_line

    def _write(self, content: bytes) -> None:
        left = memoryview(content)
        while left:
            left = left[os.write(self._output, left) :]
