# SPDX-License-Identifier: Apache-2.0
"""Supports Redis: recognises it, reads its settings as far as possible, and decides its attach
mode. It has no function to attach probes to.

Redis overwrites its command line and environment with a title (setproctitle.c). That removes the
path of its configuration, which CONFIG SET can change anyway. So its threads, its sockets and some
variables in its memory are examined instead.
"""

from __future__ import annotations

import re
from itertools import islice

from qjoule.contract import AttachMode
from qjoule.errors import QjouleError
from qjoule.servers.candidate import Candidate
from qjoule.servers.choice import Case, Choice, as_wanted
from qjoule.servers.elf import Executable
from qjoule.servers.function_code import FOUND_MAX, is_whole
from qjoule.servers.processes import Listening
from qjoule.servers.redis.memory import memory_of, threads_read
from qjoule.servers.resolution import no_function_of
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
from qjoule.servers.types import Fact, Server

#: tls.c, from 6.0: created when TLS is first configured. Without it no port can use TLS.
_TLS_CONTEXT = ("redis_tls_ctx", "valkey_tls_ctx")
_TLS_OPTION = b"tls-cert-file"  #: in config.c, if built with TLS
resolve = no_function_of("Redis")

_BANNER = b"Redis version=%s, bits=%d"  # server.c; forks contain their own name instead
_VERSION = re.compile(rb"[2-9]\.\d{1,2}\.\d{1,3}")
_BYTES_MAX = 8 << 20  #: searched of its constants, which have 1 MB


def is_redis_server(candidate: Candidate) -> bool:
    """Returns true for a server, false for a tool that is the same executable."""
    return is_server(candidate, "redis")


def is_server(candidate: Candidate, product: str) -> bool:
    """Returns true for a server, false for a tool that is the same executable by another name.

    The title may be anything (proc-title-template), so the tools are recognised instead: by the
    name that they were started with, by Sentinel's title, or by the kernel's name of the process.

    Args:
        product: the prefix of the names of the executable and its tools.
    """
    title = (candidate.arguments or ("",))[0]
    # The path that started it may contain blanks; so may a title, after the name.
    names = {command.rpartition("/")[2] for command in (title, title.split(" ")[0])}
    sentinel = f"{product}-sentinel"
    tools = (f"{product}-check-rdb", f"{product}-check-aof", sentinel)
    return names.isdisjoint(tools) and "[sentinel]" not in title and candidate.name != sentinel


def settings(running: Running) -> Settings:
    """Reads the settings from its threads, its sockets and its memory."""
    return Settings(encryption(running.candidate, running.listening), io_threads(running.candidate))


def encryption(candidate: Candidate, listening: Listening) -> Fact:
    """Returns whether its sessions may be encrypted."""
    try:
        executable = candidate.executable
        if _TLS_OPTION not in executable.constants():
            return Fact(False, "built without TLS")
        if listening.unix and not listening.tcp:
            return Fact(False, "it listens on unix sockets only, which have no TLS")
        with memory_of(candidate, executable) as memory:
            configured = any(memory.of(memory.symbol(*_TLS_CONTEXT)))
    except QjouleError as why:
        return Fact(None, f"it can do TLS, and its memory does not say whether it does: {why}")
    return Fact(configured, "TLS is configured" if configured else "TLS is not configured")


def io_threads(candidate: Candidate, *, always_read: bool = False) -> Fact:
    """Returns whether other threads than the main one read. Threads that only write are ignored.

    `always_read`: all io-threads read.
    """
    try:
        names = candidate.access.threads()
    except QjouleError as error:
        return Fact(None, str(error))
    threads = sum(name.startswith("io_thd_") for name in names)
    if not threads:
        return Fact(False, "one thread serves all")
    try:
        if always_read:
            read = True
        else:
            with memory_of(candidate, candidate.executable) as memory:
                read = threads_read(memory)
    except QjouleError as why:
        # If this is wrong, requests are still counted. If False were wrong, none would be.
        return Fact(True, f"{threads} io-threads, taken to read as this cannot be seen: {why}")
    return Fact(read, f"{threads} io-threads, which {'read and write' if read else 'only write'}")


def identify(executable: Executable) -> Identified | None:
    return identify_by(executable, _BANNER, "redis")


def identify_by(executable: Executable, banner: bytes, flavour: str) -> Identified | None:
    """Recognises an executable with this banner as Redis or as a fork of it.

    Its command table lists since which version each command exists. The newest is its version.
    """
    strings = executable.constants()
    if banner not in strings:
        return None
    head = strings[:_BYTES_MAX]
    since = [
        tuple(map(int, match[0].split(b".")))
        for match in islice(_VERSION.finditer(head), FOUND_MAX)
        if is_whole(head, *match.span())
    ]
    return Identified(flavour, ".".join(map(str, max(since))) if since else "")


def choose_attach_mode(case: Case) -> Choice:
    """A command takes less time than a probe, so only the sockets can be traced.

    With reading io-threads, requests are seen, but the main thread executes what several threads
    have read without a system call in between. TLS sessions are recognised and counted when they
    arrive. So are requests read by io-threads that could not be detected in advance.
    """
    server, wanted, missing = case.server, case.wanted, case.no_traffic
    threads = server.thread_pool
    if wanted is not None and not (threads.value and wanted is AttachMode.STATISTICAL):
        pool = threads.source if threads.value else ""
        return as_wanted(case, "Redis has none", missing or pool)
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
    """What tracing never sees of the server."""
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

#: Rows of docs/servers.md.
DOCUMENTED = (
    Supported(
        "redis",
        "Redis",
        (PLAIN, TLS, Mode("io-threads that read", thread_pool=True), UNKNOWN),
        _TESTED,
        (Functions("Redis", (), f"Redis {', '.join(_TESTED)}"),),
    ),
)
