# SPDX-License-Identifier: Apache-2.0
"""What a Valkey is configured to do, as far as it can be seen from outside.

Its io-threads read requests as well as they write replies, from 8.0 on (io_threads.c). Whether it
has TLS is found as in Redis.
"""

from __future__ import annotations

from qjoule.errors import QjouleError
from qjoule.servers.candidate import Candidate
from qjoule.servers.redis.settings import encryption
from qjoule.servers.support import Running, Settings
from qjoule.servers.types import Fact

_TOOLS = ("valkey-check-rdb", "valkey-check-aof", "valkey-sentinel")


def is_valkey_server(candidate: Candidate) -> bool:
    """Not one of the tools that are the same executable under another name."""
    title = (candidate.arguments or ("",))[0]
    called = title.split(" ")[0].rpartition("/")[2]
    is_sentinel = "[sentinel]" in title or candidate.name == "valkey-sentinel"
    return called not in _TOOLS and not is_sentinel


def settings(running: Running) -> Settings:
    """As its threads, its sockets and its memory show."""
    return Settings(encryption(running.candidate, running.listening), io_threads(running.candidate))


def io_threads(candidate: Candidate) -> Fact:
    """Whether threads beside the main one read for it."""
    try:
        names = candidate.access.threads()
    except QjouleError as error:
        return Fact(None, str(error))
    threads = sum(name.startswith("io_thd_") for name in names)
    if not threads:
        return Fact(False, "one thread serves all")
    return Fact(True, f"{threads} io-threads, which read and write")
