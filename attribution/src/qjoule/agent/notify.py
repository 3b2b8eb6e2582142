# SPDX-License-Identifier: Apache-2.0
"""Reports the agent's state to the service manager (sd_notify(3)).

The unit has `NotifyAccess=all`, because its main process is the root part, not this one.
"""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress

#: Passes a message on. Raises `OSError`: nobody listens.
Tell = Callable[[bytes], object]
#: A message has 4096 bytes at most, and a character up to four of them.
_STATUS_CHARACTERS = 1000


class Manager:
    """Sends to the service manager; without `tell`, to nobody."""

    def __init__(self, tell: Tell | None = None, watchdog_s: float = 0.0) -> None:
        """`watchdog_s`: the manager expects a sign of life this often; 0: never."""
        self._send = tell
        self._every_s = watchdog_s / 2
        self._last_s = -math.inf
        self._status = ""

    @staticmethod
    def of_environment() -> Manager:
        """Connects to the manager that NOTIFY_SOCKET names; WATCHDOG_USEC is its interval.

        The socket is opened now, because the engine can open none.
        """
        tell = _connected(os.environ.pop("NOTIFY_SOCKET", ""))
        try:
            watchdog_s = int(os.environ.pop("WATCHDOG_USEC", "0")) / 1e6
        except ValueError:
            watchdog_s = 0.0
        return Manager(tell, watchdog_s)

    def ready(self, status: str) -> None:
        self._notify("READY", status)

    def reloading(self) -> None:
        self._notify("RELOADING")

    def stopping(self) -> None:
        self._notify("STOPPING")

    def status(self, status: str) -> None:
        """Sets the status that the next message contains."""
        self._status = " ".join(status.split())[:_STATUS_CHARACTERS]

    def alive(self) -> None:
        """To be called often; sends a sign of life when one is due."""
        now_s = time.monotonic()
        if self._every_s and now_s - self._last_s >= self._every_s:
            self._last_s = now_s
            self._notify("WATCHDOG")

    def _notify(self, variable: str, status: str | None = None) -> None:
        if status is not None:
            self.status(status)
        if self._send is not None:
            with suppress(OSError):  # nobody listens: tracing goes on
                self._send(f"{variable}=1\nSTATUS={self._status}".encode(errors="replace"))


def _connected(address: str) -> Tell | None:
    """Returns a function that sends to this socket; @ stands for an abstract name's first byte."""
    if not address:
        return None
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.setblocking(False)
    try:
        manager.connect(address.replace("@", "\0", 1) if address[0] == "@" else address)
    except OSError:
        manager.close()
        return None
    return manager.send
