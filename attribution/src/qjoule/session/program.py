# SPDX-License-Identifier: Apache-2.0
"""The program that runs beside a recording (`record -- CMD`), at once or after a rest."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from qjoule.errors import QjouleError
from qjoule.root_part.client import Program, root_part


class Running(Protocol):
    def exit_code(self) -> int | None:
        """Waits for its end; None: it was never started. Raises `QjouleError`: it could not be."""

    def cancel(self) -> None:
        """Keeps it from starting, if it has not started yet."""


class _Now:
    def __init__(self, program: Program) -> None:
        self._program = program

    def exit_code(self) -> int | None:
        return self._program.exit_code()

    def cancel(self) -> None:
        pass


class _Later:
    """Asks the root part for the program after some seconds.

    The root part runs what stands on its own command line and nothing else, so this may be asked
    when this process is already confined.
    """

    def __init__(self, words: tuple[str, ...], seconds: float, ended: Callable[[], None]) -> None:
        self._words, self._seconds, self._ended = words, seconds, ended
        self._cancelled = threading.Event()
        self._program: Program | None = None
        self._error: QjouleError | None = None
        self._thread = threading.Thread(target=self._run, name="qjoule-rest", daemon=True)
        self._thread.start()

    def exit_code(self) -> int | None:
        self._thread.join()
        if self._error is not None:
            raise self._error
        return None if self._program is None else self._program.exit_code()

    def cancel(self) -> None:
        self._cancelled.set()

    def _run(self) -> None:
        if self._cancelled.wait(self._seconds):
            return
        try:
            self._program = root_part().run(self._words, self._ended)
        except QjouleError as error:
            self._error = error
            self._ended()


def start(words: tuple[str, ...], ended: Callable[[], None], rest_s: float | None) -> Running:
    """Starts the program, or begins to wait for `rest_s` before that.

    `ended` is called on another thread when it has ended. Raises `QjouleError` if it cannot be
    started now.
    """
    if rest_s is not None:
        return _Later(words, rest_s, ended)
    return _Now(root_part().run(words, ended))
