# SPDX-License-Identifier: Apache-2.0
"""Lines of `qjoule doctor` about servers with an unknown protocol."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from qjoule.servers.types import Server

_SHOWN = 16  #: as many as can be traced at a time


def to_json(server: Server) -> dict[str, Any]:
    return {
        "label": server.label,
        "executable": str(server.exe_path),
        "pids": list(server.tgids),
        "ports": list(server.ports),
        "udp_ports": list(server.udp_ports),
        "sockets": list(server.sockets),
        "restart": server.restart.how,
    }


def lines(servers: Sequence[Server]) -> Iterator[str]:
    """One line each, of any length, not yet sanitised."""
    yield "  not traced unless asked for, with --generic or --pid: by thread name, without queries;"
    yield "  calls of clients here that run under 'qjoule run' are counted (mode tag, not exact)"
    for server in servers[:_SHOWN]:
        where = [f"port {port}" for port in server.ports]
        where += [f"UDP port {port}" for port in server.udp_ports]
        pids = f"pid {server.tgids[0]}"
        if len(server.tgids) > 1:
            pids += f" and {len(server.tgids) - 1} more"
        # Where there is a port, the paths of unix sockets add little.
        facts = ", ".join([server.name, pids, *(where or server.sockets)])
        yield f"  -  {facts}; {server.restart.why}"
    if len(servers) > _SHOWN:
        yield f"  and {len(servers) - _SHOWN} more: see --json"
