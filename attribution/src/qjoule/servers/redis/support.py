# SPDX-License-Identifier: Apache-2.0
"""Redis: recognising it, and its attach mode. It has no function that probes would be attached
to."""

from __future__ import annotations

import re
from itertools import islice

from qjoule.contract import AttachMode
from qjoule.servers.choice import Case, Choice, as_wanted
from qjoule.servers.elf import Executable
from qjoule.servers.function_code import FOUND_MAX, is_whole
from qjoule.servers.redis.settings import is_redis_server, settings
from qjoule.servers.resolution import no_function_of
from qjoule.servers.support import Identified, ServerSupport
from qjoule.servers.supported import PLAIN, TLS, UNKNOWN, Functions, Mode, Supported
from qjoule.servers.types import Server

resolve = no_function_of("Redis")

_BANNER = b"Redis version=%s, bits=%d"  # server.c; forks contain their own name instead
_VERSION = re.compile(rb"[2-9]\.\d{1,2}\.\d{1,3}")
_BYTES_MAX = 8 << 20  #: it has one


def identify(executable: Executable) -> Identified | None:
    return identify_by(executable, _BANNER, "redis")


def identify_by(executable: Executable, banner: bytes, flavour: str) -> Identified | None:
    """Recognises an executable with this banner as Redis or as a fork of it.

    Its command table lists since which version each command exists. The newest is its version.
    """
    strings = executable.constants()
    if banner not in strings:
        return None
    some = strings[:_BYTES_MAX]
    since = [
        tuple(map(int, match[0].split(b".")))
        for match in islice(_VERSION.finditer(some), FOUND_MAX)
        if is_whole(some, *match.span())
    ]
    return Identified(flavour, ".".join(map(str, max(since))) if since else "")


def choose_attach_mode(case: Case) -> Choice:
    """A command takes less time than a probe would: so it is the sockets or nothing.

    With reading io-threads, requests are seen, but the main thread executes what several threads
    have read without a system call in between. TLS sessions are recognised and counted when they
    arrive. So are requests read by io-threads that could not be detected in advance.
    """
    server, wanted, missing = case.server, case.wanted, case.no_traffic
    threads = server.thread_pool
    if wanted is not None and not (threads.value and wanted is AttachMode.STATISTICAL):
        others = threads.source if threads.value else ""
        return as_wanted(case, "Redis has none", missing or others)
    if missing:
        return Choice(AttachMode.NONE, missing, exact=False)
    if threads.value:
        why = f"requests are counted and timed; {threads.source}, so none owns CPU time"
        if server.encryption.value is not False:
            why += "; those with TLS would be counted as loss, not seen"
        return Choice(AttachMode.STATISTICAL, why, "symbol: Redis has none", exact=False)
    why = "one thread executes all commands; those of one read are one request"
    doubts = []
    if server.encryption.value is not False:
        doubts.append(f"with TLS ({server.encryption.source})")
    if threads.value is None:
        doubts.append(f"that io-threads read ({threads.source})")
    if doubts:
        why += f"; requests {' or '.join(doubts)} would be counted as loss, not seen"
    other = "symbol: Redis has none" + ("; exact without these" if doubts else "")
    return Choice(AttachMode.SOCKET, why, other, exact=not doubts)


def blind_spots(_server: Server) -> tuple[str, ...]:
    """What is never seen of it."""
    return (
        "with --client-tags, names that connections got before tracing (CLIENT SETNAME) are known "
        "only with --credentials FILE too, and not on unix sockets",
    )


SUPPORT = ServerSupport(
    name="redis",
    flavours={"redis": "Redis"},
    executables="redis-server|redis-check-(rdb|aof)",
    identify=identify,
    serves=is_redis_server,
    settings=settings,
    resolve=resolve,
    choose_attach_mode=choose_attach_mode,
    blind_spots=blind_spots,
)


_TESTED = ("7.0", "8.0")

#: Of docs/servers.md.
DOCUMENTED = (
    Supported(
        "redis",
        "Redis",
        (PLAIN, TLS, Mode("io-threads that read", thread_pool=True), UNKNOWN),
        _TESTED,
        (Functions("Redis", (), f"Redis {', '.join(_TESTED)}"),),
    ),
)
