# SPDX-License-Identifier: Apache-2.0
"""Decodes Redis' data."""

from __future__ import annotations

from qjoule.servers.decoding_types import CAUSED_BY_WRITES, SERVES_QUERIES, Decoding
from qjoule.servers.names_before import NamesBefore
from qjoule.servers.redis.dialect import LANGUAGE
from qjoule.servers.registry import dialect


def connection_name(name: bytes) -> str | None:
    """The name that a client sets for its connection, "": none. None: the server refuses it.

    Redis refuses blanks and anything but printable ASCII (clientSetNameOrReply(), networking.c).
    """
    return name.decode("ascii") if all(0x21 <= byte <= 0x7E for byte in name) else None


DECODING = Decoding(
    languages={dialect("redis"): LANGUAGE},
    application=connection_name,
    names_before=NamesBefore(
        *("qjoule.servers.redis.connections", "redis", "CLIENT LIST"), with_client_tags=True
    ),
    serving_threads=("redis-server", "io_thd_"),  # the main thread, and its io-threads
    causes={
        "io_thd_": SERVES_QUERIES,
        "bio_lazy_free": CAUSED_BY_WRITES,  # frees what UNLINK, FLUSHALL and evictions removed
        "bio_aof": CAUSED_BY_WRITES,  # syncs the log
        "redis-fork": CAUSED_BY_WRITES,  # writes a snapshot or a new log
    },
)
