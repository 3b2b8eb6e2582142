# SPDX-License-Identifier: Apache-2.0
"""MongoDB, for shared code."""

from __future__ import annotations

from qjoule.servers.choice import attach_mode_by_connection
from qjoule.servers.elf import Executable
from qjoule.servers.mongodb.find import SIGNATURES, boundary_cost_ns, resolve
from qjoule.servers.mongodb.settings import settings
from qjoule.servers.support import Identified, ServerSupport
from qjoule.servers.supported import THREAD_MODES, Functions, Supported
from qjoule.servers.types import Server

#: Names of options, in every mongod since 2.6 and in no mongos.
_OPTIONS = (b"storage.dbPath", b"systemLog.destination")


def identify(executable: Executable) -> Identified | None:
    strings = executable.constants()
    return Identified("mongodb") if all(option in strings for option in _OPTIONS) else None


def _blind_spots(server: Server) -> tuple[str, ...]:
    before = (
        "sessions opened before tracing have no user and no application (appName) without "
        "--credentials FILE"
    )
    if server.compression.value is False:
        return (before,)
    return (
        before,
        f"requests that a driver compresses by zlib or zstd are one row in the live view "
        f"({server.compression.source})",
    )


SUPPORT = ServerSupport(
    name="mongodb",
    flavours={"mongodb": "MongoDB"},
    executables="mongod",
    installed=("usr/bin/mongod",),
    identify=identify,
    settings=settings,
    resolve=resolve,
    choose_attach_mode=attach_mode_by_connection,
    symbol_loops=True,
    boundary_cost_ns=boundary_cost_ns,
    blind_spots=_blind_spots,
)


#: Of docs/servers.md.
DOCUMENTED = (
    Supported(
        "mongodb",
        "MongoDB",
        THREAD_MODES,
        ("stand-in",),  # mongod_like of the tests: it reads, and is called, as a mongod does
        tuple(Functions(versions, (name,)) for versions, name in SIGNATURES),
    ),
)
