# SPDX-License-Identifier: Apache-2.0
"""The parts of a `Decoding`, with which a server's folder describes the server's data.

A session's user, database and application are in the first message of its connection, and in
messages that change them. These bytes come from the network, before any login has succeeded, and
may be cut at QJ_STARTUP_BYTES. No length in them is trusted beyond the end of the message. A field
that cannot be read is None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from qjoule.servers.client import NamesBefore, TextsById
from qjoule.shapes.rules import Lexis
from qjoule.shapes.shape import OtherId
from qjoule.tags.definitions import Tags

MAX_NAME_BYTES = 128
#: In place of an application's name: resets it to that of the login.
RESET = ""


@dataclass(frozen=True)
class Startup:
    """Names of a session. None: the message does not contain it, or is cut before it."""

    user: str | None = None
    database: str | None = None
    application: str | None = None
    tags: Tags = ()  #: tags that the client gave the connection


class ShortMessage(Exception):
    """The message ends before the field does."""


class Fields:
    """Reads a message from its begin; raises `ShortMessage` at the end."""

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


def note(session: dict[str, Any], name: str, value: bytes) -> None:
    """Stores a name of a session, cut to MAX_NAME_BYTES. An empty name counts as none."""
    if value:
        session[name] = value[:MAX_NAME_BYTES].decode("utf-8", "replace")


class DatabaseChange(NamedTuple):
    """A statement changes the session's default database."""

    database: str | None  #: None: its name cannot be read


@dataclass(frozen=True)
class Build:
    """A version of a server, as far as ids of its statements depend on it."""

    flavour: str
    version: str
    #: Token numbers of the parser's keywords; only if ids are asked for.
    vocabulary: Mapping[str, int] = field(default_factory=dict)
    no_vocabulary: str = ""  #: why there is no vocabulary


@dataclass(frozen=True)
class Language:
    """How statements of one dialect become shapes. No function here raises, whatever the bytes."""

    #: Maps (statement, whether it was cut) to the whole text of its shape, which is safe to print,
    #: and whether that is truncated.
    shape: Callable[..., tuple[str, bool]]
    #: Maps a shape's text to OpenTelemetry's `db.query.summary`, at most 255 characters.
    summary: Callable[[str], str]
    #: Maps a shape's text to the new default database; None: the statement does not change it.
    database: Callable[[str], DatabaseChange | None] = lambda _text: None
    lexis: Lexis | None = None  #: the lexical rules; None: it is not SQL
    #: `shape` takes `rules`: the session's settings that came with the text (qjoule.shapes.rules).
    follows_rules: bool = False
    #: Maps (statement, whether it was cut, its session's rules, a server version) to other tools'
    #: ids, where they can be computed.
    ids: Callable[[bytes, bool, int, Build], Iterable[OtherId]] | None = None


class References(Protocol):
    """Resolves references to texts of statements, by hash.

    Each method accepts texts of any dialect and ignores those of other servers.
    """

    def learn(self, shape: int, dialect: int, text: str) -> None:
        """Stores the text of a shape."""

    def forget(self, shape: int) -> None:
        """Drops the text of a shape, which will not be needed again."""

    def waits(self, text: bytes, dialect: int) -> bool:
        """Returns true if a text refers to another one that may still arrive."""

    def statement(self, text: bytes, dialect: int) -> tuple[bytes, int]:
        """Returns the text with its references filled in, and the dialect to read it by."""


@dataclass(frozen=True)
class Titles:
    """How to read from a process's command line what it does and for whom."""

    role: Callable[[str], str]  #: what the process does, at most 15 characters; empty: no title
    #: User and database of the client that the process serves; None: uncertain.
    session: Callable[[str], tuple[str, str] | None]
    with_client: str  #: the role of a process that has a client


@dataclass(frozen=True)
class PlanStep:
    """What a function on a stack shows of the plan that it executes.

    `node`: the kind of the node that it executes; empty: none. `counted`: nodes of this kind are
    numbered along the stack, and numbers `begin` again below such a function. `goes_on`: directly
    below these functions, it executes the same node as they.
    """

    node: str
    counted: bool = False
    begins: bool = False
    goes_on: tuple[str, ...] = ()


@dataclass(frozen=True)
class Decoding:
    """How to decode a server's data. Empty members, or None: the server has nothing of the kind."""

    languages: Mapping[int, Language] = field(default_factory=dict)  #: by number of the dialect
    #: Readers of tags that clients send to the server, by the dialect's number.
    tag_readers: Mapping[int, Callable[[bytes], Tags]] = field(default_factory=dict)
    #: Readers of texts that hold a shape's hash and its id in another tool, by the dialect's
    #: number. None: the text is invalid.
    reported_ids: Mapping[int, Callable[[bytes], tuple[int, OtherId] | None]] = field(
        default_factory=dict
    )
    references: Callable[[], References] | None = None
    #: Decodes the names in the first message of a session. Never raises.
    startup: Callable[[bytes], Startup] | None = None
    #: Decodes the names in a message that changes a session's user. Never raises.
    change: Callable[[bytes], Startup] | None = None
    #: The application name that a statement sets; `startup.RESET`; None: the statement sets none.
    application_set: Callable[[bytes], str | None] | None = None
    #: The client's new application name; "": none, None: unchanged.
    application: Callable[[bytes], str | None] | None = None
    titles: Titles | None = None
    texts_by_id: TextsById | None = None  #: how to ask the server for statements
    names_before: NamesBefore | None = None  #: how to ask the server for names of sessions
    #: Prefixes of names of threads that work for requests (15 bytes of each name are known).
    serving_threads: tuple[str, ...] = ()
    #: Functions whose work a better statement or schema avoids, by a kind of advice
    #: (`qjoule.engine.advice`); names without arguments.
    avoidable: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    executes: tuple[str, ...] = ()  #: functions that, with their callees, execute a plan
    #: Returns what a function, by its name on stacks, shows of a plan; None: nothing.
    plan_step: Callable[[str], PlanStep | None] | None = None
    #: Attributes of events of OpenTelemetry's collector, by our attribute or label with the same
    #: meaning (`qjoule.push.events`).
    collector: Mapping[str, str] = field(default_factory=dict)
    #: Likewise of its events of single queries (`qjoule.push.samples`).
    collector_sample: Mapping[str, str] = field(default_factory=dict)
