# SPDX-License-Identifier: Apache-2.0
"""Reads a session's user, database and application, from the first message of a connection and from
messages that change them.

The bytes come from the network, before any login has succeeded, and may be cut at QJ_STARTUP_BYTES.
No length in them is trusted beyond the end of the message. What cannot be read is None.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from qjoule.tags.definitions import Tags

MAX_NAME_BYTES = 128
#: In place of an application's name: it is reset to the one of the login.
RESET = ""


@dataclass(frozen=True)
class Startup:
    """None: the message does not contain it, or cannot be read that far."""

    user: str | None = None
    database: str | None = None
    application: str | None = None
    tags: Tags = ()  #: that its client gave the connection


class ShortMessage(Exception):
    """The message ends before the field does."""


class Fields:
    """Reads a message from the front; raises `ShortMessage` instead of reading past its end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        if size > len(self._data) - self._at:
            raise ShortMessage
        self._at += size
        return self._data[self._at - size : self._at]

    def uint(self, size: int, order: str = "little") -> int:
        return int.from_bytes(self.take(size), "big" if order == "big" else "little")

    def cstring(self) -> bytes:
        end = self._data.find(b"\0", self._at)
        if end < 0:
            raise ShortMessage
        return self.take(end + 1 - self._at)[:-1]


def note(found: dict[str, Any], name: str, value: bytes) -> None:
    """Stores a name of a session, cut to MAX_NAME_BYTES. An empty name counts as none."""
    if value:
        found[name] = value[:MAX_NAME_BYTES].decode("utf-8", "replace")
