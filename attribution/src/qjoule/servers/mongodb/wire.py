# SPDX-License-Identifier: Apache-2.0
"""Decodes MongoDB's data: a client's names, and which command opened a cursor.

A client names itself in the first message of a connection (hello, isMaster). The application is in
`client.application.name`. The user is known if the client asks for the user's mechanisms
(`saslSupportedMechs: "database.user"`) or logs in at once (`speculativeAuthenticate`, whose payload
begins with `n,,n=user,` by RFC 5802). No length is trusted beyond the message's end.

Commands that open cursors are remembered, so that a getMore can be shown with its own command.

MongoDB specifications, "MongoDB Handshake", "Authentication"; bsonspec.org.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from qjoule.servers.client import NamesBefore
from qjoule.servers.decoding_types import MAX_NAME_BYTES, Decoding, Startup, note
from qjoule.servers.mongodb.message import origin_of
from qjoule.servers.mongodb.shapes import LANGUAGE
from qjoule.servers.registry import dialect
from qjoule.servers.registry import dialect as number_of
from qjoule.shapes.shape import Texts

_OP_QUERY_START = re.compile(rb".{4}admin\.\$cmd\0.{8}", re.DOTALL)
_OP_MSG_START = re.compile(rb".{4}\0", re.DOTALL)
_SCRAM_USER = re.compile(rb"n,,n=([^,]+),")
_DEPTH_MAX = 8
_STRING, _DOCUMENT, _ARRAY, _BINARY = 2, 3, 4, 5
_FIXED = {1: 8, 6: 0, 7: 12, 8: 1, 9: 8, 10: 0, 16: 4, 17: 8, 18: 8, 19: 16}


def hello(message: bytes) -> Startup:
    """Reads the names in the first message of a connection, without its header. Never raises."""
    session: dict[str, Any] = {}
    for name, value in _names(message).items():
        note(session, name, value)
    return Startup(**session)


def user_name(name: bytes) -> Startup:
    """Decodes a user that the server reported for a connection. Never raises."""
    return Startup(user=_decoded(name))


def app_name(name: bytes) -> str | None:
    """Decodes an application's name that the server reported. Never raises."""
    return _decoded(name)


def _decoded(name: bytes) -> str:
    return name[:MAX_NAME_BYTES].decode("utf-8", "replace")


def _names(message: bytes) -> dict[str, bytes]:
    """Returns `user`, `database` and `application`, as far as the message has them. Never raises.

    Args:
        message: without its header, possibly cut.
    """
    start = _OP_QUERY_START.match(message) or _OP_MSG_START.match(message)
    if start is None:
        return {}
    names: dict[str, bytes] = {}
    for path, value in _texts(message, start.end() + 4):
        if path == b"client.application.name":
            names["application"] = value
        elif path == b"saslSupportedMechs":
            database, _, user = value.partition(b".")
            names |= {"database": database, "user": user}
        elif path == b"speculativeAuthenticate.db":
            names["database"] = value
        elif path == b"speculativeAuthenticate.payload" and (match := _SCRAM_USER.match(value)):
            names["user"] = match[1].replace(b"=2C", b",").replace(b"=3D", b"=")
    return {name: value for name, value in names.items() if value}


def _texts(data: bytes, at: int) -> Iterator[tuple[bytes, bytes]]:
    """Yields (path, bytes) of each text and binary in a document with elements from `at` on."""
    path: list[bytes] = []
    while at < len(data) and len(path) < _DEPTH_MAX:
        kind = data[at]
        at += 1
        if kind == 0:
            if not path:
                return
            path.pop()
            continue
        end = data.find(b"\0", at)
        if end < 0:
            return
        key, at = data[at:end], end + 1
        if kind in (_DOCUMENT, _ARRAY):
            path.append(key)
            at += 4
        elif kind in (_STRING, _BINARY):
            size = int.from_bytes(data[at : at + 4], "little")
            at += 4 if kind == _STRING else 5
            if at + size > len(data):
                return
            text = data[at : at + size]
            yield b".".join([*path, key]), text[:-1] if kind == _STRING else text
            at += size
        elif kind in _FIXED:
            at += _FIXED[kind]
        else:
            return


_MONGODB = number_of("mongodb")


class Cursors:
    """Texts of MongoDB shapes by hash, to show a getMore with its command.

    Keeps the most recently used texts: see `Texts`.
    """

    def __init__(self) -> None:
        self._texts = Texts()

    def learn(self, shape: int, dialect: int, text: str) -> None:
        """Stores the shape's text."""
        if dialect == _MONGODB:
            self._texts.add(shape, text)

    def waits(self, text: bytes, dialect: int) -> bool:
        """Returns true if a message refers to a command that has not arrived yet.

        The command may come later, because CPUs have separate buffers.
        """
        if dialect != _MONGODB:
            return False
        origin = origin_of(text)
        return origin != 0 and origin not in self._texts

    def forget(self, shape: int) -> None:
        """Forgets the shape's text."""
        self._texts.forget(shape)

    def statement(self, text: bytes, dialect: int) -> tuple[bytes, int]:
        """Adds to a getMore the command that opened its cursor; any other text is unchanged."""
        if dialect != _MONGODB:
            return text, dialect
        return text + (self._texts.get(origin_of(text)) or "").encode(), dialect


DECODING = Decoding(
    languages={dialect("mongodb"): LANGUAGE},
    references=Cursors,
    startup=hello,
    change=user_name,
    application=app_name,
    names_before=NamesBefore(
        *("qjoule.servers.mongodb.client", "pymongo", "$currentOp"), by_name=True
    ),
    serving_threads=("ferretdb",),  # all of FerretDB's threads have the name of its process
)
