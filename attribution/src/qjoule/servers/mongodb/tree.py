# SPDX-License-Identifier: Apache-2.0
"""A MongoDB message as a tree of keys without values, as :mod:`mongodb_message` reads it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum


class Opcode(IntEnum):
    """Opcodes of requests. 2001 to 2007: of clients before 3.6; servers since 5.1 know only
    2004.
    """

    UPDATE = 2001
    INSERT = 2002
    QUERY = 2004
    GET_MORE = 2005
    DELETE = 2006
    KILL_CURSORS = 2007
    COMPRESSED = 2012
    MSG = 2013


class State(Enum):
    """How a message ends: properly, beyond the bytes that were sent, or malformed."""

    WHOLE = "whole"
    CUT = "cut"
    BAD = "bad"


@dataclass(frozen=True)
class Value:
    """Any value that is left out. In an array it stands for several in a row."""


@dataclass(frozen=True)
class Text:
    """A text that is kept: the name of a collection, a database or a field."""

    text: bytes


@dataclass
class Document:
    elements: list[tuple[bytes, Node]] = field(default_factory=list)

    def get(self, key: bytes) -> Node | None:
        return next((node for name, node in self.elements if name == key), None)


@dataclass
class Array:
    items: list[Node] = field(default_factory=list)


Node = Value | Text | Document | Array
VALUE = Value()


@dataclass
class Message:
    """A message.

    `compressor`: of OP_COMPRESSED. `namespace`: of OP_QUERY. `sections`: of OP_MSG, by name.
    `origin`: of a getMore, the text of the command that opened its cursor, if known.
    """

    opcode: int
    state: State = State.WHOLE
    body: Document = field(default_factory=Document)
    sections: list[tuple[bytes, Node]] = field(default_factory=list)
    namespace: bytes = b""
    compressor: int | None = None
    origin: str = ""
