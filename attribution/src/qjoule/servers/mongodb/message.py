# SPDX-License-Identifier: Apache-2.0
"""Parses a MongoDB message without its values, into the symbols of ``bpf/mongodb/shape.h``, and
builds a tree of keys from them.

The kernel side sends a message as: opcode and length of the body (uint32 each, little-endian); for
a getMore the hash of the command that opened its cursor (uint64, 0 unknown); then the body's first
`BODY_BYTES`. `dialect_cursors` appends that command. The kernel side hashes the symbols of these
bytes. `read` takes the same symbols and builds a tree, so each hash has at most one tree. A client
may write any length into a message; it is used only within its bounds.

MongoDB manual, "MongoDB Wire Protocol"; bsonspec.org, version 1.1.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import Enum, IntEnum

BODY_BYTES = 4080  #: QJ_MONGODB_BODY
DEPTH_MAX = 62  #: QJ_MONGODB_DEPTH
MESSAGE_MAX = 48_000_000  #: QJ_MONGODB_MAX
_HAS_CHECKSUM = 1
#: Sent before the body: opcode, length of the body, and hash of the command behind a getMore.
HEAD = struct.Struct("<IIQ")


class Opcode(IntEnum):
    """Of requests. 2001 to 2007: clients before 3.6; since 5.1 servers know only 2004."""

    UPDATE = 2001
    INSERT = 2002
    QUERY = 2004
    GET_MORE = 2005
    DELETE = 2006
    KILL_CURSORS = 2007
    COMPRESSED = 2012
    MSG = 2013


class State(Enum):
    """How a message ends: complete, cut off before its end, or malformed."""

    WHOLE = "whole"
    CUT = "cut"
    BAD = "bad"


@dataclass(frozen=True)
class Value:
    """An omitted value; in an array, several in a row."""


@dataclass(frozen=True)
class Text:
    """A text that is shown: the name of a collection, a database or a field."""

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
    """`compressor`: of OP_COMPRESSED. `namespace`: of OP_QUERY. `sections`: of OP_MSG, by name.

    `origin`: of a getMore, the text of the command that opened its cursor, if known.
    """

    opcode: int
    state: State = State.WHOLE
    body: Document = field(default_factory=Document)
    sections: list[tuple[bytes, Node]] = field(default_factory=list)
    namespace: bytes = b""
    compressor: int | None = None
    origin: str = ""


def fnv(name: bytes) -> int:
    """Returns FNV-1a, 32 bits, by which the kernel side, too, distinguishes keys."""
    value = 0x811C9DC5
    for byte in name:
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


#: Keys of a command whose texts are names.
KEPT_KEYS = (b"$db", b"collection", b"key", b"ns")
#: Keys of a command whose documents are values, or private.
VALUE_KEYS = (
    *(b"documents", b"document", b"comment", b"lsid", b"$clusterTime", b"client"),
    b"speculativeAuthenticate",
)
_KEPT = frozenset(map(fnv, KEPT_KEYS))
_VALUES = frozenset(map(fnv, VALUE_KEYS))

_DOUBLE, _STRING, _DOCUMENT, _ARRAY, _BINARY = 1, 2, 3, 4, 5
_REGEX, _REFERENCE, _SCOPED_CODE, _SIZED_MAX = 0x0B, 0x0C, 0x0F, 0x0F
#: Size of values with a fixed size, by type.
_FIXED = {
    _DOUBLE: 8,
    0x06: 0,  # undefined
    0x07: 12,  # object id
    0x08: 1,  # bool
    0x09: 8,  # date
    0x0A: 0,  # null
    0x10: 4,  # int32
    0x11: 8,  # timestamp
    0x12: 8,  # int64
    0x13: 16,  # decimal128
    0x7F: 0,  # largest key
    0xFF: 0,  # smallest key
}


def origin_of(sent: bytes) -> int:
    """Returns the hash of the command that opened a getMore's cursor; 0: none, or unknown."""
    return int(HEAD.unpack_from(sent)[2]) if len(sent) >= HEAD.size else 0


def read(sent: bytes) -> Message:
    """Parses the message, as far as it was sent. Never raises."""
    if len(sent) < HEAD.size:
        return Message(0, State.BAD)
    opcode, length, _ = HEAD.unpack_from(sent)
    end = HEAD.size + min(length, BODY_BYTES)
    message = Message(opcode, origin=sent[end:].decode("utf-8", "replace"))
    reader = _Reader(sent[HEAD.size : end], length)
    try:
        if opcode == Opcode.MSG:
            _msg(reader, message)
        elif opcode == Opcode.QUERY:
            reader.skip(4)  # flags
            message.namespace = reader.cstring()
            reader.skip(8)  # how many to skip, how many to return
            _fill_document(reader, message.body, 0, is_body=True)
        elif opcode == Opcode.COMPRESSED:
            reader.skip(8)  # the original opcode, the size before compression
            message.compressor = reader.byte()
    except _EndOfMessage as ends:
        message.state = ends.state
    return message


class _EndOfMessage(Exception):
    def __init__(self, state: State) -> None:
        self.state = state


class _Reader:
    """Reads a body of `length` bytes, of which only `data` was sent."""

    def __init__(self, data: bytes, length: int) -> None:
        self._data = data[:length]
        self._at = 0
        self._length = length
        self.checksum = 0

    @property
    def left(self) -> int:
        return self._length - self._at

    def _need(self, size: int) -> None:
        if self._at + size > len(self._data):
            raise _EndOfMessage(State.BAD if len(self._data) == self._length else State.CUT)

    def byte(self) -> int:
        return self.text(1)[0]

    def number(self) -> int:
        return int.from_bytes(self.text(4), "little")

    def cstring(self) -> bytes:
        end = self._data.find(b"\0", self._at)
        if end < 0:
            self._need(len(self._data) + 1)
        text = self._data[self._at : end]
        self._at = end + 1
        return text

    def text(self, size: int) -> bytes:
        self._need(size)
        self._at += size
        return self._data[self._at - size : self._at]

    def skip(self, size: int, ends_section: bool = False) -> None:
        """Skips a value. Only the very last value may extend beyond the data."""
        beyond = self._at + size > len(self._data) and len(self._data) < self._length
        rest = self.left - size
        if size > self.left:
            raise _EndOfMessage(State.BAD if not beyond else State.CUT)
        if beyond and rest and not (ends_section and rest == self.checksum):
            raise _EndOfMessage(State.CUT)
        self._at += size
        if beyond and not rest and not ends_section:
            raise _EndOfMessage(State.BAD)  # the message ends within a document


def _msg(reader: _Reader, message: Message) -> None:
    flags = reader.number()
    reader.checksum = 4 if flags & _HAS_CHECKSUM else 0
    while reader.left > 0 and not (reader.checksum and reader.left == reader.checksum):
        kind = reader.byte()
        if kind == 0:
            body = message.body if not message.body.elements else Document()
            _fill_document(reader, body, 0, is_body=True)
        elif kind == 1:
            _items(reader, message)
        else:
            raise _EndOfMessage(State.BAD)


def _items(reader: _Reader, message: Message) -> None:
    size = reader.number()
    if size < 5 or size - 4 > reader.left:
        raise _EndOfMessage(State.BAD)
    end = reader.left - (size - 4)
    name = reader.cstring()
    if reader.left > end and fnv(name) in _VALUES:
        message.sections.append((name, VALUE))
        reader.skip(reader.left - end, ends_section=True)
        return
    items = Array()
    message.sections.append((name, items))
    while reader.left > end:
        document = Document()
        items.items.append(document)
        _fill_document(reader, document, 0)


def _fill_document(
    reader: _Reader, node: Document | Array, depth: int, *, is_body: bool = False
) -> None:
    """Adds the elements of a document or array at `depth`, up to its end."""
    length = reader.number()
    if length < 5 or length - 4 > reader.left or depth >= DEPTH_MAX:
        raise _EndOfMessage(State.BAD)
    first = is_body
    while kind := reader.byte():
        key = reader.cstring()
        named = depth == 0 and isinstance(node, Document)
        hashed = fnv(key) if named else 0
        if kind in (_DOCUMENT, _ARRAY) and not (named and hashed in _VALUES):
            child = Document() if kind == _DOCUMENT else Array()
            _add(node, key, child)
            _fill_document(reader, child, depth + 1)
        elif kind == _STRING and named and (first or hashed in _KEPT):
            _add(node, key, Text(_string(reader)))
        else:
            _add(node, key, VALUE)
            _skip_value(reader, kind)
        first = False


def _add(node: Document | Array, key: bytes, child: Node) -> None:
    if isinstance(node, Document):
        node.elements.append((key, child))
    elif child is not VALUE or not node.items or node.items[-1] is not VALUE:
        node.items.append(child)


def _string(reader: _Reader) -> bytes:
    size = reader.number()
    if size > reader.left:
        raise _EndOfMessage(State.BAD)
    return reader.text(size).partition(b"\0")[0]


def _skip_value(reader: _Reader, kind: int) -> None:
    if kind in _FIXED:
        reader.skip(_FIXED[kind])
        return
    if kind == _REGEX:
        reader.cstring()
        reader.cstring()
        return
    if kind > _SIZED_MAX:
        raise _EndOfMessage(State.BAD)
    size = reader.number()
    if kind in (_DOCUMENT, _ARRAY, _SCOPED_CODE):  # sizes that count themselves
        size -= 4
    more = {_BINARY: 1, _REFERENCE: 12}.get(kind, 0)  # the subtype; an object id
    if size < 0 or size + more > reader.left:
        raise _EndOfMessage(State.BAD)
    reader.skip(size + more)
