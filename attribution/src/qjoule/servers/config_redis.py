"""What a Redis is configured to do, as far as it can be seen from outside.

A Redis writes its title over its command line and environment (setproctitle.c), and that held the
path of its configuration, which CONFIG SET changes anyway: so its threads, its sockets and one
variable of its memory are looked at instead.
"""

from __future__ import annotations

import os

from qjoule.errors import QjouleError
from qjoule.servers.elf import Executable, open_executable
from qjoule.servers.listening import Listening
from qjoule.servers.maps import mapped_files
from qjoule.servers.procfs import Process
from qjoule.servers.types import Fact

_TOOLS = ("redis-check-rdb", "redis-check-aof", "redis-sentinel")
#: tls.c, from 6.0: made when TLS is first configured, without which no port can have it.
_TLS_CONTEXT = "redis_tls_ctx"
_TLS_OPTION = b"tls-cert-file"  #: config.c has it where it was built with TLS
_POINTER_BYTES = 8


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
        configured = _has_tls_context(process, executable)
    except (OSError, QjouleError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        return Fact(None, f"it can do TLS, and its memory does not say whether it does: {why}")
    return Fact(configured, "TLS is configured" if configured else "TLS is not configured")


def _has_tls_context(process: Process, executable: Executable) -> bool:
    """Whether it has the context that all TLS sessions are made from.

    Raises:
        OSError: its memory cannot be read, which takes root.
        QjouleError: it is not known where in its memory.
    """
    address = executable.variable(_TLS_CONTEXT)
    if address is None:
        raise QjouleError(f"its executable lacks the symbol {_TLS_CONTEXT}")
    if not executable.is_fixed:
        whole = mapped_files(process.directory, ".*")
        bases = [one.base for one in whole if one.name == process.exe_name]
        if not bases:
            raise QjouleError("its executable is not mapped")
        address += bases[0]
    descriptor = os.open(process.directory / "mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        pointer = os.pread(descriptor, _POINTER_BYTES, address)
    finally:
        os.close(descriptor)
    if len(pointer) != _POINTER_BYTES:
        raise QjouleError(f"nothing is at {_TLS_CONTEXT}")
    return any(pointer)


def redis_io_threads(process: Process) -> Fact:
    """Whether threads beside the main one read and write for it."""
    try:
        names = [path.read_text() for path in (process.directory / "task").glob("*/comm")]
    except OSError as error:
        return Fact(None, f"its threads cannot be seen: {error.strerror}")
    readers = sum(name.startswith("io_thd_") for name in names)
    return Fact(bool(readers), f"{readers} io-threads" if readers else "one thread serves all")
