# SPDX-License-Identifier: Apache-2.0
"""Runs the program beside a recording (`record -- CMD`), at once or after a pause."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from qjoule.errors import QjouleError
from qjoule.root_part.client import Program, root_part


class Running(Protocol):
    def exit_code(self) -> int | None:
        """Waits for its end; None: never started. Raises `QjouleError` if it could not start."""

    def cancel(self) -> None:
        """Prevents the program from starting, if it has not started yet."""


class _Started:
    def __init__(self, program: Program) -> None:
        self._program = program

    def exit_code(self) -> int | None:
        return self._program.exit_code()

    def cancel(self) -> None:
        pass


class _Delayed:
    """Makes the root part start the program after some seconds.

    This process may be confined by then: the root part runs only the program that is on its own
    command line."""

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
    """Starts the program, at once or after `rest_s`.

    `ended` is called on another thread when the program has ended. Raises `QjouleError` if it
    cannot be started at once.
    """
    if rest_s is not None:
        return _Delayed(words, rest_s, ended)
    return _Started(root_part().run(words, ended))
