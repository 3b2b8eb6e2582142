# SPDX-License-Identifier: Apache-2.0
"""What a server's folder says of the server's data: the parts of a `Decoding`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from qjoule.servers.startup import Startup
from qjoule.shapes.lexis import Lexis
from qjoule.tags.definitions import Tags


class DatabaseChange(NamedTuple):
    """A statement makes another database its session's default."""

    database: str | None  #: None: its name cannot be read


def _changes_none(_text: str) -> DatabaseChange | None:
    return None


@dataclass(frozen=True)
class Language:
    """How statements of one dialect become shapes. Nothing here raises, whatever the bytes."""

    #: (statement, whether it goes on after these bytes) to the whole text of its shape, which is
    #: safe to print, and whether that is truncated.
    shape: Callable[[bytes, bool], tuple[str, bool]]
    #: A shape's text to OpenTelemetry's `db.query.summary`, at most 255 characters.
    summary: Callable[[str], str]
    #: A shape's text to the default database that the statement changes to; None: it changes none.
    database: Callable[[str], DatabaseChange | None] = _changes_none
    lexis: Lexis | None = None  #: the lexical rules; None: it is no SQL


class References(Protocol):
    """Texts by their hashes, of statements that later texts refer to.

    Each method takes texts of any dialect and leaves alone those that are none of its server's.
    """

    def learn(self, shape: int, dialect: int, text: str) -> None:
        """The text of a shape, once it has been made."""

    def forget(self, shape: int) -> None:
        """The text of a shape will not be asked for again."""

    def waits(self, text: bytes, dialect: int) -> bool:
        """Whether a text refers to one that has not come, which may yet come."""

    def statement(self, text: bytes, dialect: int) -> tuple[bytes, int]:
        """The text with what it refers to put in, and the dialect to read that by."""


@dataclass(frozen=True)
class Titles:
    """How a server's processes say by their command lines what they do and for whom."""

    role: Callable[[str], str]  #: what the process does, at most 15 characters; empty: no title
    #: User and database of the client that the process serves; None: not certain.
    session: Callable[[str], tuple[str, str] | None]
    with_client: str  #: the role of a process that has a client


@dataclass(frozen=True)
class Decoding:
    """What a server's data means. A member that is None or empty: the server has no such thing."""

    languages: Mapping[int, Language] = field(default_factory=dict)  #: by number of the dialect
    #: By number of the dialect: what reads tags that clients send to the server.
    tag_readers: Mapping[int, Callable[[bytes], Tags]] = field(default_factory=dict)
    references: Callable[[], References] | None = None
    #: The first message of a session to the names in it. Never raises.
    startup: Callable[[bytes], Startup] | None = None
    #: A message that makes a session another user's to the names in it. Never raises.
    change: Callable[[bytes], Startup] | None = None
    #: A statement to the application's name that it sets, `startup.RESET`, or None: it sets none.
    application_set: Callable[[bytes], str | None] | None = None
    #: What a client calls itself from now on; "": nothing, None: as before.
    application: Callable[[bytes], str | None] | None = None
    titles: Titles | None = None
    #: How names of threads begin that work for requests (15 bytes of each name are known).
    serving_threads: tuple[str, ...] = ()
