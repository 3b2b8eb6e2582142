"""What a plan takes of an examined server: what can be attached to, and what is never seen."""

from __future__ import annotations

from dataclasses import replace

from qjoule.servers.resolution import Resolution
from qjoule.servers.types import Flavour, Server
from qjoule.servers.voltdb.find import VOLTDB_NOTES

_X_PROTOCOL_PORT = 33060  # MySQL manual, "X Plugin Options and System Variables"


def resolution_of(server: Server) -> Resolution:
    """What came with it, and what of such a server is never seen."""
    notes = _blind_spots(server)
    if server.flavour is Flavour.GENERIC:  # also one of whose protocol nothing is to be used
        return Resolution(server.exe_id, notes=notes)
    if server.resolution is None:
        return Resolution(server.exe_id, notes=notes, problem="its executable was not examined")
    return replace(server.resolution, notes=(*notes, *server.resolution.notes))


def _blind_spots(server: Server) -> tuple[str, ...]:
    if server.flavour is Flavour.GENERIC:
        return (server.restart.why,)
    if server.flavour is Flavour.VOLTDB:
        return VOLTDB_NOTES
    if server.compression.value is not False:
        return (
            f"requests that a driver compresses by zlib or zstd are one row in the live view "
            f"({server.compression.source})",
        )
    if server.flavour is Flavour.MYSQL and _X_PROTOCOL_PORT in server.ports:
        return (f"sessions of the X Protocol (port {_X_PROTOCOL_PORT}) count as server background",)
    return ()
