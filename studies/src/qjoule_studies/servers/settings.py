# SPDX-License-Identifier: Apache-2.0
"""Settings of a server that a study starts, as its options, and where it is then reached."""

from __future__ import annotations

from collections.abc import Mapping

from qjoule_studies.servers.process import DatabaseServer
from qjoule_studies.workload import Target, Value

Settings = Mapping[str, Value]


def target(flavour: str, server: DatabaseServer, user: str = "", password: str = "") -> Target:
    """Where a server that was started is reached."""
    socket = str(server.socket) if server.socket.exists() else ""
    return Target(
        flavour, server.pid, port=server.port, socket=socket, user=user, password=password
    )


def options(settings: Settings, true: str, false: str) -> list[str]:
    """Settings as options of a command line."""
    return [f"--{name}={text(value, true, false)}" for name, value in settings.items()]


def text(value: Value, true: str, false: str) -> str:
    """A setting's value, with the server's words for true and false."""
    if isinstance(value, bool):
        return true if value else false
    return str(value)
