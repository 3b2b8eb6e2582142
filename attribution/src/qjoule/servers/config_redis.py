"""What a Redis is configured to do, as far as it can be seen from outside.

A Redis writes its title over its command line and environment (setproctitle.c), and that held the
path of its configuration, which CONFIG SET changes anyway: so its threads, its sockets and some
variables of its memory are looked at instead.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from qjoule.errors import QjouleError
from qjoule.servers.elf import Executable, Symbol, open_executable
from qjoule.servers.listening import Listening
from qjoule.servers.maps import mapped_files
from qjoule.servers.procfs import Process
from qjoule.servers.types import Fact

_TOOLS = ("redis-check-rdb", "redis-check-aof", "redis-sentinel")
#: tls.c, from 6.0: made when TLS is first configured, without which no port can have it.
_TLS_CONTEXT = "redis_tls_ctx"
_TLS_OPTION = b"tls-cert-file"  #: config.c has it where it was built with TLS
#: config.c: the table of all options, from 7.0 on and before.
_OPTIONS = ("static_configs", "configs")
_OPTION_WORDS = 24  #: struct standardConfig has fewer
_READS_OPTION = b"io-threads-do-reads"
_SETTINGS = "server"  #: the global struct redisServer, whose fields options are


def is_redis_server(process: Process) -> bool:
    """Not one of the tools that are the same executable under another name.

    The title may be any (proc-title-template), so it is the tools that are recognised: by the name
    they were called by, by what Sentinel's title says, or by what the kernel calls it.
    """
    title = (process.arguments or ("",))[0]
    called = title.split(" ")[0].rpartition("/")[2]
    is_sentinel = "[sentinel]" in title or process.name == "redis-sentinel"
    return called not in _TOOLS and not is_sentinel


def redis_encryption(process: Process, listening: Listening) -> Fact:
    """Whether its sessions may be encrypted."""
    try:
        executable = open_executable(process.directory / "exe")
        if _TLS_OPTION not in executable.constants():
            return Fact(False, "built without TLS")
        if listening.unix and not listening.tcp:
            return Fact(False, "it listens on unix sockets only, which have no TLS")
        with _memory_of(process, executable) as memory:
            configured = any(memory.of(memory.symbol(_TLS_CONTEXT)))
    except (OSError, QjouleError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        return Fact(None, f"it can do TLS, and its memory does not say whether it does: {why}")
    return Fact(configured, "TLS is configured" if configured else "TLS is not configured")


def redis_io_threads(process: Process) -> Fact:
    """Whether threads beside the main one read for it. Those that only write change nothing."""
    try:
        names = [path.read_text() for path in (process.directory / "task").glob("*/comm")]
    except OSError as error:
        return Fact(None, f"its threads cannot be seen: {error.strerror}")
    threads = sum(name.startswith("io_thd_") for name in names)
    if not threads:
        return Fact(False, "one thread serves all")
    try:
        executable = open_executable(process.directory / "exe")
        with _memory_of(process, executable) as memory:
            read = _is_set(memory, _READS_OPTION)
    except (OSError, QjouleError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        return Fact(None, f"{threads} io-threads, and whether they read is not known: {why}")
    return Fact(read, f"{threads} io-threads, which {'read and write' if read else 'only write'}")


@dataclass(frozen=True)
class _Memory:
    """What a process has at the addresses of its executable."""

    descriptor: int
    executable: Executable
    base: int  #: what addresses in the file are counted from

    def symbol(self, *names: str) -> Symbol:
        """The first of these global variables.

        Raises:
            QjouleError: the executable has none.
        """
        for name in names:
            if found := self.executable.variable(name):
                return found
        raise QjouleError(f"its executable lacks the symbol {names[0]}")

    def of(self, symbol: Symbol) -> bytes:
        """
        Raises:
            OSError: its memory cannot be read, which takes root.
            QjouleError: it ends before that.
        """
        return self.read(symbol.vaddr + self.base, symbol.size, symbol.name)

    def read(self, address: int, size: int, what: str) -> bytes:
        found = os.pread(self.descriptor, size, address)
        if len(found) != size:
            raise QjouleError(f"nothing is at {what}")
        return found


@contextmanager
def _memory_of(process: Process, executable: Executable) -> Iterator[_Memory]:
    """
    Raises:
        OSError: its memory may not be read.
        QjouleError: it is not known where in its memory.
    """
    base = 0
    if not executable.is_fixed:
        whole = mapped_files(process.directory, ".*")
        bases = [one.base for one in whole if one.name == process.exe_name]
        if not bases:
            raise QjouleError("its executable is not mapped")
        base = bases[0]
    descriptor = os.open(process.directory / "mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield _Memory(descriptor, executable, base)
    finally:
        os.close(descriptor)


def _is_set(memory: _Memory, option: bytes) -> bool:
    """The value of a yes-or-no option.

    Its row in the table begins with the address of its name; the first address in it that lies in
    `server` is that of the variable (struct standardConfig, boolConfigData).

    Raises:
        OSError, QjouleError: it cannot be told.
    """
    name = memory.executable.constant(option)
    table, settings = memory.symbol(*_OPTIONS), memory.symbol(_SETTINGS)
    content = memory.of(table)
    words = struct.unpack(f"<{len(content) // 8}Q", content[: len(content) // 8 * 8])
    if name is None or name + memory.base not in words:
        raise QjouleError(f"it has no option {option.decode()}")
    at = words.index(name + memory.base) + 1
    first = settings.vaddr + memory.base
    fields = words[at : at + _OPTION_WORDS]
    variable = next((one for one in fields if first <= one < first + settings.size), None)
    if variable is None:
        raise QjouleError(f"where {option.decode()} is kept is not known")
    (value,) = struct.unpack("<i", memory.read(variable, 4, option.decode()))
    if value not in (0, 1):
        raise QjouleError(f"{option.decode()} is {value}")
    return bool(value)
