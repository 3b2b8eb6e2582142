# SPDX-License-Identifier: Apache-2.0
"""Finds the network namespace of another user's process."""

from __future__ import annotations

from pathlib import Path

from qjoule.errors import QjouleError
from qjoule.root_part.access import SocketAccess
from qjoule.root_part.bound import bound
from qjoule.root_part.client import root_part


def network_of(pid: int) -> str | None:
    """Its name, from /proc/PID/ns/net; None if the process has ended or may not be inspected."""
    connection = root_part().connection
    try:
        if connection is None:
            return str(Path(f"/proc/{pid}/ns/net").readlink())
        with bound(connection, pid)[1] as theirs:
            return SocketAccess(theirs).network() or None
    except (OSError, QjouleError):
        return None
