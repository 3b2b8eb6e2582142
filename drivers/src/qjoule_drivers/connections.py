# SPDX-License-Identifier: Apache-2.0
"""Tags that a connection carries to its server. Opt-in, for named keys only.

When it is opened: servers store a client's name or attributes, which adds nothing to each
statement: `application_name` in PostgreSQL, connection attributes in MySQL, a client's name in
Redis. The value dates from when the connection was opened, and a pool lends connections to all
kinds of work. So name keys that hold for a process, such as a release or a job.

In front of a statement: MySQL query attributes (8.0.23), for servers that support them. They leave
its text unchanged, so a cache or a prepared statement sees the same statement. Format: MySQL Source
Code Documentation, "COM_QUERY". A connection that has negotiated attributes sends them with every
COM_QUERY, even if there are none.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import quote

from qjoule_drivers.comments import chosen
from qjoule_drivers.context import in_force

_keys: frozenset[str] = frozenset()


def put_in_connections(keys: Iterable[str]) -> None:
    """From now on new connections send the tags of these keys. No keys: they send none."""
    global _keys  # noqa: PLW0603
    _keys = frozenset(keys)


def of_a_new_connection() -> dict[str, str]:
    """The current tags that a new connection sends."""
    return in_force().those(_keys) if _keys else {}


def name_of_a_new_connection(longest: int) -> str:
    """`key=value,key2=value2`, encoded as in comments: as many pairs as fit into `longest`
    characters.

    Empty without tags.
    """
    name = ""
    for key, value in of_a_new_connection().items():
        pair = f"{quote(key, safe='')}={quote(value, safe='')}"
        longer = f"{name},{pair}" if name else pair
        if len(longer) <= longest:
            name = longer
    return name


#: CLIENT_QUERY_ATTRIBUTES, a capability flag that server and client both send.
CAPABILITY = 1 << 27
PREFIX = "qjoule."  #: of attribute names, to distinguish them from the application's own
NONE = b"\x00\x01"  #: no attributes, in one set
_STRING = b"\xfe\x00"  #: MYSQL_TYPE_STRING without flags


def attributes(encoding: str) -> bytes:
    """The bytes that precede a statement sent now; `encoding` is the connection's."""
    tags = chosen()
    return _encoded(tuple(tags.items()), encoding) if tags else NONE


@lru_cache(maxsize=4096)
def _encoded(tags: tuple[tuple[str, str], ...], encoding: str) -> bytes:
    count = len(tags)
    no_nulls = bytes((count + 7) // 8)
    names = b"".join(_STRING + _counted(f"{PREFIX}{key}".encode("ascii")) for key, _ in tags)
    values = b"".join(_counted(value.encode(encoding, "replace")) for _, value in tags)
    return bytes([count, 1]) + no_nulls + b"\x01" + names + values


def _counted(data: bytes) -> bytes:
    """The data preceded by its length ("Protocol::LengthEncodedInteger")."""
    size = len(data)
    if size < 0xFB:
        return bytes([size]) + data
    return b"\xfc" + size.to_bytes(2, "little") + data
