# SPDX-License-Identifier: Apache-2.0
"""Values in packets of the MySQL protocol.

MySQL 8.0 Source Code Documentation, "Protocol Basics", "Binary Protocol Value", "COM_QUERY".
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

TINY, LONG, DOUBLE, NULL, LONGLONG, DATE, BLOB, STRING = 1, 3, 5, 6, 8, 10, 252, 254
Parameter = tuple[int, bytes, bytes | None]  #: type, name, and value as it is sent; None is NULL


def counted(data: bytes) -> bytes:
    """A length-encoded string."""
    size = len(data)
    if size < 0xFB:
        return bytes([size]) + data
    if size < 1 << 16:
        return b"\xfc" + size.to_bytes(2, "little") + data
    return b"\xfd" + size.to_bytes(3, "little") + data


def string(name: bytes, value: bytes) -> Parameter:
    return STRING, name, counted(value)


def number(value: int, name: bytes = b"") -> Parameter:
    return LONGLONG, name, struct.pack("<q", value)


def parameters(every: Sequence[Parameter]) -> bytes:
    """NULLs, types with names, and values, as clients with query attributes send them."""
    nulls = sum(1 << at for at, (_, _, value) in enumerate(every) if value is None)
    body = nulls.to_bytes((len(every) + 7) // 8, "little") + b"\1"
    body += b"".join(struct.pack("<H", kind) + counted(name) for kind, name, _ in every)
    return body + b"".join(value or b"" for _, _, value in every)


def attributes_of_connection(attributes: Mapping[bytes, bytes]) -> bytes:
    """Attributes in the form that logins have."""
    return counted(b"".join(counted(key) + counted(value) for key, value in attributes.items()))


def ok_status(packet: bytes) -> int:
    """The status of an OK packet."""
    at = 1
    for _ in range(2):  # affected rows, last insert id: length-encoded
        at += {0xFC: 3, 0xFD: 4, 0xFE: 9}.get(packet[at], 1)
    return int(struct.unpack_from("<H", packet, at)[0])
