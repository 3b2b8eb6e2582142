# SPDX-License-Identifier: Apache-2.0
"""Supports Valkey, which speaks the protocol of Redis: recognises it, and reads its settings.

From 8.0 on, its io-threads both read requests and write replies (io_threads.c). TLS is detected as
for Redis.
"""

from __future__ import annotations

from qjoule.servers.candidate import Candidate
from qjoule.servers.elf import Executable
from qjoule.servers.redis.support import (
    blind_spots,
    choose_attach_mode,
    encryption,
    identify_by,
    io_threads,
    is_server,
    resolve,
)
from qjoule.servers.support import (
    PLAIN,
    TLS,
    UNKNOWN,
    Functions,
    Identified,
    Mode,
    Running,
    ServerSupport,
    Settings,
    Supported,
)

_BANNER = b"Valkey version=%s, bits=%d"  # server.c


def identify(executable: Executable) -> Identified | None:
    return identify_by(executable, _BANNER, "valkey")


def is_valkey_server(candidate: Candidate) -> bool:
    """Returns true for a server, false for a tool that is the same executable."""
    return is_server(candidate, "valkey")


def settings(running: Running) -> Settings:
    """Reads the settings from its threads, its sockets and its memory."""
    threads = io_threads(running.candidate, always_read=True)
    return Settings(encryption(running.candidate, running.listening), threads)


SUPPORT = ServerSupport(
    name="valkey",
    flavours={"valkey": "Valkey"},
    system="redis",
    executables="valkey-server|valkey-check-(rdb|aof)",
    identify=identify,
    serves=is_valkey_server,
    settings=settings,
    resolve=resolve,
    choose_attach_mode=choose_attach_mode,
    blind_spots=blind_spots,
)


_TESTED = ("8.1", "9.1")

#: Rows of docs/servers.md.
DOCUMENTED = (
    Supported(
        "valkey",
        "Valkey",
        (PLAIN, TLS, Mode("io-threads", thread_pool=True), UNKNOWN),
        _TESTED,
        (Functions("Valkey", (), f"Valkey {', '.join(_TESTED)}"),),
    ),
)
