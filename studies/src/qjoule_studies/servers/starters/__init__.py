# SPDX-License-Identifier: Apache-2.0
"""Starts each server with a study's settings: a module for each server.

`STARTS` starts its products, by name; `OURS` are the settings that the start itself decides on.
Only `qjoule_studies.servers.start` imports it: it needs drivers.
"""

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
