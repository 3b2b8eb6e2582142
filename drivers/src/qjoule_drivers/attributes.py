# SPDX-License-Identifier: Apache-2.0
"""Tags as MySQL query attributes (8.0.23), for servers that support them.

Attributes precede a statement and leave its text unchanged, so a cache or a prepared statement sees
the same statement.

Format: MySQL Source Code Documentation, "COM_QUERY". A connection that has negotiated attributes
sends them with every COM_QUERY, even if there are none.
"""

from __future__ import annotations

from functools import lru_cache

from qjoule_drivers.comments import chosen

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
