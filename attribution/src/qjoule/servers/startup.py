"""Who a session belongs to: user, database and application, from the first message of a connection
and from what changes them.

The bytes come from the network, before any login succeeded, and may be cut at
QJ_STARTUP_BYTES. Nothing in them is believed beyond its own length; what cannot be read is None.

MySQL: Protocol::HandshakeResponse41 and 320 (MySQL Source Code Documentation, "Connection
Phase Packets"). PostgreSQL: StartupMessage (PostgreSQL manual, "Message Formats").
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from qjoule.contract import ServerKind
from qjoule.servers.mongodb.startup import mongodb_names
from qjoule.tags.comments import tags_of_attributes
from qjoule.tags.definitions import Tags

MAX_NAME_BYTES = 128

_CONNECT_WITH_DB = 0x8
_PROTOCOL_41 = 0x200
_SECURE_CONNECTION = 0x8000
_PLUGIN_AUTH = 0x80000
_CONNECT_ATTRS = 0x100000
_PLUGIN_AUTH_LENENC = 0x200000

_POSTGRES_PROTOCOL_3 = 3


@dataclass(frozen=True)
class Startup:
    """None: the message does not say, or cannot be read that far."""

    user: str | None = None
    database: str | None = None
    application: str | None = None
    tags: Tags = ()  #: that its client gave the connection


class _Short(Exception):
    """The message ends before the field does."""


class _Cursor:
    """Reads a message from the front; raises `_Short` instead of reading past its end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        if size > len(self._data) - self._at:
            raise _Short
        self._at += size
        return self._data[self._at - size : self._at]

    def uint(self, size: int, order: str = "little") -> int:
        return int.from_bytes(self.take(size), "big" if order == "big" else "little")

    def cstring(self) -> bytes:
        end = self._data.find(b"\0", self._at)
        if end < 0:
            raise _Short
        return self.take(end + 1 - self._at)[:-1]

    def lenenc(self) -> int:
        """A length-encoded integer (MySQL: "Integer Types")."""
        first = self.uint(1)
        widths = {0xFC: 2, 0xFD: 3, 0xFE: 8}
        return self.uint(widths[first]) if first in widths else first


def parse_startup(kind: int, message: bytes) -> Startup:
    """The names in the first message of a session with a server of `kind` (a `ServerKind`).

    `message` is what the server read at once: of MySQL the packet, of MongoDB the message, both
    without header, of PostgreSQL the whole message. Never raises.
    """
    found: dict[str, Any] = {}
    try:
        if kind == ServerKind.MYSQL:
            _mysql(_Cursor(message), found)
        elif kind == ServerKind.POSTGRES:
            _postgres(_Cursor(message), found)
        elif kind == ServerKind.MONGODB:
            for name, value in mongodb_names(message).items():
                _note(found, name, value)
    except _Short:
        pass
    return Startup(**found)


def parse_change(kind: int, message: bytes) -> Startup:
    """The names in a command that makes a session another user's: MySQL's COM_CHANGE_USER.

    `message` is the packet behind its command byte. Of a client that spoke no 4.1 protocol, the
    database is not found. Of PostgreSQL it is user and database, each with a NUL, from the title
    of a process whose login was not seen. Never raises.
    """
    found: dict[str, Any] = {}
    if kind not in (ServerKind.MYSQL, ServerKind.POSTGRES):
        return Startup()
    cursor = _Cursor(message)
    try:
        if kind == ServerKind.POSTGRES:
            _note(found, "user", cursor.cstring())
            _note(found, "database", cursor.cstring())
            return Startup(**found)
        _note(found, "user", cursor.cstring())
        cursor.take(cursor.uint(1))  # the answer to the server's challenge
        _note(found, "database", cursor.cstring())
        cursor.take(2)  # character set
        cursor.cstring()  # authentication plugin
        _mysql_attributes(_Cursor(cursor.take(cursor.lenenc())), found)
    except _Short:
        pass
    return Startup(**found)


#: What `parse_sets` returns where the name is again as it was at the login.
RESET = ""
_SETS = re.compile(
    rb"""(?: ^ | ; ) \s* (?:
        set \s+ (?: session \s+ )? application_name \s* (?: = | \s to \s )
        \s* (?: '(?P<quoted> (?: [^'\\] | '' )* )' | (?P<word> [a-z_][\w$]* ) )
        | (?P<reset> reset \s+ (?: application_name | all ) | discard \s+ all )
    ) \s* (?: ; | $ )""",
    re.IGNORECASE | re.VERBOSE,
)
#: NAMEDATALEN - 1: the server cuts the name there.
_APPLICATION_BYTES = 63


def parse_sets(statement: bytes) -> str | None:
    """The application's name that a PostgreSQL statement sets, `RESET` or None: it does not.

    Of several statements the last one counts. SET LOCAL holds for a transaction and is left out, as
    is what the statement's cut-off end would have said. Never raises.
    """
    name: str | None = None
    statement = statement.rstrip(b"\0")
    at = 0
    while found := _SETS.search(statement, at):
        at = found.end() - found[0].endswith(b";")  # which also begins the next one
        value = found["quoted"]
        word = (found["word"] or b"").lower()
        if found["reset"] or (value is None and word == b"default"):
            name = RESET
        else:
            plain = word if value is None else value.replace(b"''", b"'")
            name = application_name(plain) or RESET
        if at >= len(statement):
            break
    return name


def application_name(name: bytes) -> str | None:
    """As the server has it: printable ASCII (check_application_name(), utils/misc). None: none."""
    name = name[:_APPLICATION_BYTES]
    return "".join(chr(byte) if 32 <= byte < 127 else "?" for byte in name) or None


def parse_application(kind: int, name: bytes) -> str | None:
    """What an application calls itself from now on, "": nothing. None: as before.

    Redis refuses blanks and what is not printable ASCII (clientSetNameOrReply(), networking.c).
    """
    if kind != ServerKind.REDIS:
        return application_name(name) or ""
    return name.decode("ascii") if all(0x21 <= byte <= 0x7E for byte in name) else None


def _mysql(cursor: _Cursor, found: dict[str, Any]) -> None:
    flags = cursor.uint(2)
    if not flags & _PROTOCOL_41:
        cursor.take(3)  # largest packet
        _note(found, "user", cursor.cstring())
        if flags & _CONNECT_WITH_DB:
            cursor.cstring()
            _note(found, "database", cursor.cstring())
        return
    flags |= cursor.uint(2) << 16
    cursor.take(4 + 1 + 23)  # largest packet, character set, filler
    _note(found, "user", cursor.cstring())
    if flags & _PLUGIN_AUTH_LENENC:
        cursor.take(cursor.lenenc())
    elif flags & _SECURE_CONNECTION:
        cursor.take(cursor.uint(1))
    else:
        cursor.cstring()
    if flags & _CONNECT_WITH_DB:
        _note(found, "database", cursor.cstring())
    if flags & _PLUGIN_AUTH:
        cursor.cstring()
    if flags & _CONNECT_ATTRS:
        _mysql_attributes(_Cursor(cursor.take(cursor.lenenc())), found)


def _mysql_attributes(cursor: _Cursor, found: dict[str, Any]) -> None:
    """Ends at the end of the attributes, by `_Short`."""
    attributes: list[tuple[bytes, bytes]] = []
    try:
        while True:
            key = cursor.take(cursor.lenenc())
            attributes.append((key, cursor.take(cursor.lenenc())))
    finally:
        found["tags"] = tags_of_attributes(attributes)
        for key, value in attributes:
            if key == b"program_name":
                _note(found, "application", value)


def _postgres(cursor: _Cursor, found: dict[str, Any]) -> None:
    cursor.take(4)  # length
    if cursor.uint(4, "big") >> 16 != _POSTGRES_PROTOCOL_3:
        return  # request for TLS, GSS or cancellation
    names = {b"user": "user", b"database": "database", b"application_name": "application"}
    while key := cursor.cstring():
        value = cursor.cstring()
        if key in names:
            _note(found, names[key], value)
    if "user" in found:  # the manual: the database name defaults to the user name
        found.setdefault("database", found["user"])


def _note(found: dict[str, Any], name: str, value: bytes) -> None:
    if value:
        found[name] = value[:MAX_NAME_BYTES].decode("utf-8", "replace")
