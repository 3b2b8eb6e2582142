# SPDX-License-Identifier: Apache-2.0
"""Names of a MySQL session: from its login, and from COM_CHANGE_USER.

Protocol::HandshakeResponse41 and 320 (MySQL Source Code Documentation, "Connection Phase Packets").
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from qjoule.servers.mysql.tags import tags_of_attributes
from qjoule.servers.startup import MAX_NAME_BYTES, Fields, ShortMessage, Startup, note

_CONNECT_WITH_DB = 0x8
_PROTOCOL_41 = 0x200
_SECURE_CONNECTION = 0x8000
_PLUGIN_AUTH = 0x80000
_CONNECT_ATTRS = 0x100000
_PLUGIN_AUTH_LENENC = 0x200000


class _Packet(Fields):
    """A packet without its header."""

    def lenenc(self) -> int:
        """A length-encoded integer (MySQL: "Integer Types")."""
        first = self.uint(1)
        widths = {0xFC: 2, 0xFD: 3, 0xFE: 8}
        return self.uint(widths[first]) if first in widths else first


def login(packet: bytes) -> Startup:
    """The names in the client's answer to the server's greeting. Never raises."""
    found: dict[str, Any] = {}
    with suppress(ShortMessage):
        _login(_Packet(packet), found)
    return Startup(**found)


def change_user(packet: bytes) -> Startup:
    """The names in a COM_CHANGE_USER, without its command byte. Never raises.

    The database is not found for clients older than the 4.1 protocol.
    """
    found: dict[str, Any] = {}
    fields = _Packet(packet)
    with suppress(ShortMessage):
        note(found, "user", fields.cstring())
        fields.take(fields.uint(1))  # the answer to the server's challenge
        note(found, "database", fields.cstring())
        fields.take(2)  # character set
        fields.cstring()  # authentication plugin
        _attributes(_Packet(fields.take(fields.lenenc())), found)
    return Startup(**found)


def program_name(name: bytes) -> str | None:
    """A program's name that the server has told. Never raises."""
    return name[:MAX_NAME_BYTES].decode("utf-8", "replace")


def _login(fields: _Packet, found: dict[str, Any]) -> None:
    flags = fields.uint(2)
    if not flags & _PROTOCOL_41:
        fields.take(3)  # largest packet
        note(found, "user", fields.cstring())
        if flags & _CONNECT_WITH_DB:
            fields.cstring()
            note(found, "database", fields.cstring())
        return
    flags |= fields.uint(2) << 16
    fields.take(4 + 1 + 23)  # largest packet, character set, filler
    note(found, "user", fields.cstring())
    if flags & _PLUGIN_AUTH_LENENC:
        fields.take(fields.lenenc())
    elif flags & _SECURE_CONNECTION:
        fields.take(fields.uint(1))
    else:
        fields.cstring()
    if flags & _CONNECT_WITH_DB:
        note(found, "database", fields.cstring())
    if flags & _PLUGIN_AUTH:
        fields.cstring()
    if flags & _CONNECT_ATTRS:
        _attributes(_Packet(fields.take(fields.lenenc())), found)


def _attributes(fields: _Packet, found: dict[str, Any]) -> None:
    """Reads attributes; `ShortMessage` ends it at their end."""
    attributes: list[tuple[bytes, bytes]] = []
    try:
        while True:
            key = fields.take(fields.lenenc())
            attributes.append((key, fields.take(fields.lenenc())))
    finally:
        found["tags"] = tags_of_attributes(attributes)
        for key, value in attributes:
            if key == b"program_name":
                note(found, "application", value)
