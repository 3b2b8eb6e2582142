# SPDX-License-Identifier: Apache-2.0
"""Tells the service manager how the agent is (sd_notify(3)).

It listens to its service's main process alone, which is the root part: that passes it on.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from enum import IntEnum

from qjoule.errors import QjouleError


class Notice(IntEnum):
    """What can be told: `enum rp_notice` (tracer/root/protocol.h)."""

    READY = 1
    RELOADING = 2
    STOPPING = 3
    ALIVE = 4


#: Passes a notice on, with a status of one line. Raises `QjouleError`: nobody listens.
Tell = Callable[[Notice, str], object]


class Manager:
    """The service manager; without `tell`, nobody is told."""

    def __init__(self, tell: Tell | None = None, watchdog_s: float = 0.0) -> None:
        """`watchdog_s`: it wants a sign of life this often; 0: never."""
        self._tell_it = tell
        self._every_s = watchdog_s / 2
        self._last_s = -math.inf
        self._status = ""

    @staticmethod
    def of_environment(tell: Tell) -> Manager:
        """As NOTIFY_SOCKET and WATCHDOG_USEC say; without the former, nobody is told."""
        listens = bool(os.environ.pop("NOTIFY_SOCKET", ""))
        try:
            watchdog_s = int(os.environ.pop("WATCHDOG_USEC", "0")) / 1e6
        except ValueError:
            watchdog_s = 0.0
        return Manager(tell if listens else None, watchdog_s)

    def ready(self, status: str) -> None:
        self._tell(Notice.READY, status)

    def reloading(self) -> None:
        self._tell(Notice.RELOADING)

    def stopping(self) -> None:
        self._tell(Notice.STOPPING)

    def status(self, status: str) -> None:
        """What it shows from the next sign of life on."""
        self._status = " ".join(status.split())

    def alive(self) -> None:
        """To be called often; tells it as often as it is wanted."""
        now_s = time.monotonic()
        if self._every_s and now_s - self._last_s >= self._every_s:
            self._last_s = now_s
            self._tell(Notice.ALIVE)

    def _tell(self, notice: Notice, status: str | None = None) -> None:
        if status is not None:
            self.status(status)
        if self._tell_it is not None:
            try:
                self._tell_it(notice, self._status)
            except QjouleError:  # it does not listen: tracing goes on
                return
