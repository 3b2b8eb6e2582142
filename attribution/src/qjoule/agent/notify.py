# SPDX-License-Identifier: Apache-2.0
"""Tells the service manager how the agent is (sd_notify(3)): a datagram to a socket that it named.

The socket is opened at the start, because later this process can open none.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress


class Manager:
    """The service manager; without one, nobody is told."""

    def __init__(self, path: str = "", watchdog_s: float = 0.0) -> None:
        """`watchdog_s`: it wants a sign of life this often; 0: never."""
        self._socket: socket.socket | None = None
        self._every_s = watchdog_s / 2
        self._last_s = 0.0
        if path[:1] in ("/", "@"):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
            try:
                self._socket.connect(path if path[0] == "/" else f"\0{path[1:]}")
            except OSError:
                self._socket.close()
                self._socket = None

    @staticmethod
    def of_environment() -> Manager:
        """As NOTIFY_SOCKET and WATCHDOG_USEC say. WATCHDOG_PID names another process: the first of
        the service, of which this one is a part."""
        path = os.environ.pop("NOTIFY_SOCKET", "")
        try:
            watchdog_s = int(os.environ.pop("WATCHDOG_USEC", "0")) / 1e6
        except ValueError:
            watchdog_s = 0.0
        return Manager(path, watchdog_s)

    def ready(self, status: str) -> None:
        self._tell("READY=1", _status(status))

    def reloading(self) -> None:
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        self._tell("STOPPING=1")

    def status(self, status: str) -> None:
        self._tell(_status(status))

    def alive(self) -> None:
        """To be called often; tells it as often as it is wanted."""
        now_s = time.monotonic()
        if self._every_s and now_s - self._last_s >= self._every_s:
            self._last_s = now_s
            self._tell("WATCHDOG=1")

    def _tell(self, *lines: str) -> None:
        if self._socket is not None:
            with suppress(OSError):
                self._socket.send("\n".join(lines).encode())


def _status(text: str) -> str:
    return "STATUS=" + " ".join(text.split())
