# SPDX-License-Identifier: Apache-2.0
"""Counters and energy files as the tracer will get them: opened by the root part."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from qjoule.root_part.protocol import Kind, Refused, ask


class Sensors:
    """Uses the tracer's socket before there is a tracer."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def try_event(self, event_type: int, config: int, flags: int = 0) -> int:
        """As `machine.counters.try_event`: 0, or the errno of the refusal.

        `flags`: as `machine.perf_events.PerfEvent` has them.
        """
        try:
            reply = ask(self._connection, Kind.COUNTER, number=event_type, flags=flags, size=config)
        except Refused as error:
            return error.errno
        os.close(reply.fd)
        return 0

    def may_read(self, path: Path) -> bool:
        """Whether an energy file can be read; also with our own rights."""
        if os.access(path, os.R_OK, effective_ids=True):
            return True
        try:
            reply = ask(self._connection, Kind.ENERGY_FILE, text=os.fsencode(path))
        except Refused:
            return False
        os.close(reply.fd)
        return True
