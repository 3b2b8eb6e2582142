# SPDX-License-Identifier: Apache-2.0
"""A MongoDB message as a tree of keys, values left out: what :mod:`mongodb_message` reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum


class Opcode(IntEnum):
    """Of requests. 2001 to 2007: as clients before 3.6 asked; servers since 5.1 know 2004 only."""

    UPDATE = 2001
    INSERT = 2002
    QUERY = 2004
    GET_MORE = 2005
    DELETE = 2006
    KILL_CURSORS = 2007
    COMPRESSED = 2012
    MSG = 2013


class State(Enum):
    """How a message ends: as it should, behind what was told of it, or it makes no sense."""

    WHOLE = "whole"
    CUT = "cut"
    BAD = "bad"


@dataclass(frozen=True)
class Value:
    """Any value that is left out; in an array, several in a row."""


@dataclass(frozen=True)
class Text:
    """A text that is kept: a name of a collection, a database or a field."""

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
    """`compressor` of OP_COMPRESSED, `namespace` of OP_QUERY; `sections` by name, of OP_MSG;
    `origin`: of a getMore the text of the command that opened its cursor, if that is known."""

    opcode: int
    state: State = State.WHOLE
    body: Document = field(default_factory=Document)
    sections: list[tuple[bytes, Node]] = field(default_factory=list)
    namespace: bytes = b""
    compressor: int | None = None
    origin: str = ""
