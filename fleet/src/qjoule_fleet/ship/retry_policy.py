# SPDX-License-Identifier: Apache-2.0
"""Calls of a filesystem that may be slow, or fail for a while."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from qjoule_fleet.ship.destination import words_of

_T = TypeVar("_T")


class GaveUp(Exception):
    """The filesystem did not do it; the text says why."""


@dataclass(frozen=True)
class RetryPolicy:
    """How often and how long something is tried. The pauses double, and vary by a half."""

    attempts: int = 4
    first_pause_s: float = 1.0
    longest_pause_s: float = 30.0
    timeout_s: float = 120.0  #: of one attempt
    sleep: Callable[[float], None] = time.sleep

    def call(self, what: Callable[[], _T]) -> _T:
        """Raises `GaveUp`. An attempt that does not end in time is not tried again."""
        pause_s = self.first_pause_s
        for left in range(self.attempts - 1, -1, -1):
            try:
                return self._in_time(what)
            except TimeoutError:
                raise GaveUp(f"no answer in {self.timeout_s:g} s") from None
            except Exception as error:  # each filesystem has errors of its own
                if not left:
                    raise GaveUp(words_of(error)) from None
            self.sleep(pause_s * random.uniform(0.5, 1.5))
            pause_s = min(2 * pause_s, self.longest_pause_s)
        raise AssertionError

    def _in_time(self, what: Callable[[], _T]) -> _T:
        """In a thread of its own, because a call of a filesystem cannot be interrupted."""
        done: list[_T] = []
        failed: list[BaseException] = []

        def run() -> None:
            try:
                done.append(what())
            except BaseException as error:  # the caller raises it again
                failed.append(error)

        thread = threading.Thread(target=run, name="qjoule-ship", daemon=True)
        thread.start()
        thread.join(self.timeout_s)
        if thread.is_alive():
            raise TimeoutError
        if failed:
            raise _own(failed[0])
        return done[0]


def _own(error: BaseException) -> BaseException:
    """A filesystem's own timeout is a failure like others, and is tried again."""
    return OSError(words_of(error)) if isinstance(error, TimeoutError) else error
