# SPDX-License-Identifier: Apache-2.0
"""What a plan uses of an examined server: what can be attached to, and what is never seen."""

from __future__ import annotations

from dataclasses import replace

from qjoule.servers.registered import support_of
from qjoule.servers.resolution import Resolution
from qjoule.servers.types import NO_PROTOCOL, Server


def resolution_of(server: Server) -> Resolution:
    """The result of its examination, plus what is never seen of such a server."""
    notes = support_of(server.flavour).blind_spots(server)
    if server.flavour == NO_PROTOCOL:  # also a server whose protocol is deliberately not used
        return Resolution(server.exe_id, notes=notes)
    if server.resolution is None:
        return Resolution(server.exe_id, notes=notes, problem="its executable was not examined")
    return replace(server.resolution, notes=(*notes, *server.resolution.notes))
