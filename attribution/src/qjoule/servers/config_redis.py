"""What a Redis is configured to do, as far as it can be seen from outside.

A Redis writes its title over its command line (setproctitle.c), and that held the path of its
configuration: so its threads and what its executable is linked with are looked at instead.
"""

from __future__ import annotations

from contextlib import suppress

from qjoule.servers.procfs import Process
from qjoule.servers.types import Fact

_TOOLS = ("redis-check-rdb", "redis-check-aof", "redis-sentinel")


def is_redis_server(process: Process) -> bool:
    """Not one of the tools that are the same executable under another name.

    The title may be any (proc-title-template), so it is the tools that are recognised.
    """
    title = (process.arguments or ("",))[0]
    name = title.split(" ")[0].rpartition("/")[2]
    return name not in _TOOLS and "[sentinel]" not in title


def redis_encryption(process: Process) -> Fact:
    """Whether its sessions may be encrypted."""
    with suppress(OSError):
        if "libssl" not in (process.directory / "maps").read_text(errors="replace"):
            return Fact(False, "built without TLS, or without a library for it")
    return Fact(None, "it can do TLS, and its configuration is not known")


def redis_io_threads(process: Process) -> Fact:
    """Whether threads beside the main one read and write for it."""
    try:
        names = [path.read_text() for path in (process.directory / "task").glob("*/comm")]
    except OSError as error:
        return Fact(None, f"its threads cannot be seen: {error.strerror}")
    readers = sum(name.startswith("io_thd_") for name in names)
    return Fact(bool(readers), f"{readers} io-threads" if readers else "one thread serves all")
