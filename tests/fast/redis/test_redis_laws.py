# SPDX-License-Identifier: Apache-2.0
"""A Redis client's name as the kernel side tracks it, against the server's rules. Also: shapes of
Redis commands.

The commands come in any requests and any pieces.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fuzz.wire_library import library, split
from host_library import compiled
from qjoule.contract import Loss
from qjoule.servers import registry
from qjoule.servers.decoding import fingerprint
from qjoule.servers.redis.wire import command_shape, connection_name, redis_shape
from qjoule.shapes.shape import key_pattern
from tracing.redis_client import resp


class _Name(ctypes.Structure):
    _fields_ = [("count", ctypes.c_uint32), ("bytes", ctypes.c_char * 512)]


class Connection:
    """A client's connection, as its Redis reads it and replies. There is one at a time."""

    def __init__(self, *, is_new: bool = True) -> None:
        self._host = library()
        self._host.wire_names.restype = ctypes.POINTER(_Name)
        self._host.redis_open(int(is_new))

    def receive(self, data: bytes) -> None:
        self._host.redis_receive(data, len(data))

    def reply(self, data: bytes) -> None:
        self._host.redis_reply(data, len(data))

    @property
    def names(self) -> list[bytes]:
        """The names recorded for the connection, in order."""
        count = ctypes.c_size_t()
        recorded = self._host.wire_names(ctypes.byref(count))
        return [ctypes.string_at(recorded[i].bytes, recorded[i].count) for i in range(count.value)]

    def close(self) -> int:
        """Closes the connection; returns how many commands were counted."""
        count = self._host.redis_close()
        queries = self._host.wire_queries()
        return sum(queries[i].executions for i in range(count))

    @property
    def loss(self) -> dict[Loss, int]:
        counts = {cause: int(self._host.wire_loss(int(cause))) for cause in Loss}
        return {cause: count for cause, count in counts.items() if count}


MOST = 256  #: bytes of a name that are read
PLAIN = st.text("abrelease=1,%.~!\"'\\", max_size=12).map(str.encode)
NAMES = st.one_of(
    PLAIN,
    st.sampled_from([b"release=1", b"job=a%20b,release=2"]),
    st.sampled_from(
        [b"a b", b"\n", b"\0", b"\x7f", b"caf\xc3\xa9", b"$3\r\n", b"*1\r\n$5\r\nRESET"]
    ),
    st.integers(MOST - 1, MOST + 1).map(lambda size: b"x" * size),
)


@st.composite
def _naming(draw: st.DrawFn) -> tuple[bytes, ...]:
    """A command that names its connection, or almost does."""
    name, other = draw(NAMES), draw(st.sampled_from([b"SETNAME", b"auth", b"x"]))
    commands = [
        (b"CLIENT", b"SETNAME", name),
        (b"client", b"setName", name),
        (b"CLIENT", b"SETNAME", name, b"x"),
        (b"CLIENT", b"SETNAME"),
        (b"CLIENT", b"GETNAME"),
        (b"HELLO", b"3", b"SETNAME", name),
        (b"hello", b"2", b"auth", b"default", other, b"setname", name),
        (b"HELLO", b"9", b"SETNAME", name),
        (b"HELLO", b"3", b"AUTH", b"nobody", b"x", b"SETNAME", name),
        (b"HELLO", b"3", b"AUTH", other, b"SETNAME"),
        (b"HELLO",),
        (b"SET", b"SETNAME", name),
    ]
    return draw(st.sampled_from(commands))


WORDS = [(b"MULTI",), (b"EXEC",), (b"DISCARD",), (b"RESET",), (b"PING",), (b"GET", b"SETNAME")]
COMMANDS = st.one_of(_naming(), st.sampled_from(WORDS))
REQUESTS = st.lists(st.lists(COMMANDS, min_size=1, max_size=4), max_size=6)
SIZES = st.lists(st.integers(1, 40), max_size=4)

OK, QUEUED, ERROR = b"+OK\r\n", b"+QUEUED\r\n", b"-ERR no\r\n"
WRONG = b"-ERR wrong number of arguments\r\n"  #: which aborts a transaction


@dataclass
class Server:
    """A client's name by the rules of bpf/redis/named.bpf.h, and the server's replies.

    Replies to requests of several commands are not examined: only the client's commands count.
    """

    name: bytes = b""
    queued: bytes | None = None  #: the name that EXEC will set
    in_transaction: bool = False
    aborts: bool = False

    def answer(self, command: tuple[bytes, ...], *, alone: bool) -> bytes:
        word = command[0].upper()
        if word == b"RESET":
            self.name, self.queued, self.in_transaction = b"", None, False
            return b"+RESET\r\n"
        if word in (b"EXEC", b"DISCARD"):
            return self._end(word, alone)
        if word == b"MULTI":
            opened, self.in_transaction = not self.in_transaction, True
            self.aborts = self.aborts and not opened
            return OK if opened else ERROR
        name, reply = named_by(command)
        if self.in_transaction:
            if name is not None or reply == WRONG:
                self.queued = name
            self.aborts |= reply == WRONG
            return ERROR if reply == WRONG else QUEUED
        if name is not None and not (alone and reply != OK):
            self._take(name)
        return reply if valid(name) else ERROR

    def _end(self, word: bytes, alone: bool) -> bytes:
        queued, self.queued = self.queued, None
        was_open, self.in_transaction = self.in_transaction, False
        if word == b"DISCARD":
            return OK if was_open else ERROR
        done = was_open and not self.aborts
        if queued is not None and (done or not alone):
            self._take(queued)
        return b"*1\r\n" + OK if done else ERROR

    def _take(self, name: bytes) -> None:
        if valid(name):
            self.name = name if len(name) <= MOST else b""


def valid(name: bytes | None) -> bool:
    return name is None or all(0x21 <= byte <= 0x7E for byte in name)


def named_by(command: tuple[bytes, ...]) -> tuple[bytes | None, bytes]:
    """The name that a command asks for, and the reply if the name is valid."""
    parts = tuple(part.upper() for part in command)
    if parts[:2] == (b"CLIENT", b"SETNAME"):
        return (command[2], OK) if len(command) == 3 else (None, WRONG)
    options = parts[2:3] + parts[5:6]  # with and without AUTH before it
    if parts[0] != b"HELLO" or parts[1:2] == (b"9",) or b"SETNAME" not in options:
        return None, ERROR
    return command[-1], ERROR if b"nobody" in command else OK


@given(REQUESTS, SIZES)
@example([[(b"CLIENT", b"SETNAME", b"a=1")], [(b"CLIENT", b"SETNAME", b"b 1")]], [1])
@example([[(b"CLIENT", b"SETNAME", b"a=1"), (b"CLIENT", b"SETNAME", b"b 1")]], [])
@example([[(b"MULTI",)], [(b"CLIENT", b"SETNAME", b"a=1")], [(b"MULTI",)], [(b"EXEC",)]], [3])
@example([[(b"MULTI",)], [(b"CLIENT", b"SETNAME", b"a=1")], [(b"CLIENT", b"SETNAME")]], [])
@example([[(b"MULTI",), (b"CLIENT", b"SETNAME", b"a"), (b"CLIENT", b"SETNAME"), (b"EXEC",)]], [])
def test_a_name_is_what_the_rules_say(
    requests: list[list[tuple[bytes, ...]]], sizes: list[int]
) -> None:
    server, connection, name = Server(), Connection(), ""
    for request in requests:
        known_names = len(connection.names)
        for piece in split(b"".join(resp(*command) for command in request), sizes, 8192):
            connection.receive(piece)
        alone = len(request) == 1
        connection.reply(b"".join(server.answer(command, alone=alone) for command in request))
        for new in connection.names[known_names:]:
            named = connection_name(new)
            name = name if named is None else named
        assert name == server.name.decode()
    assert connection.close() == sum(len(request) for request in requests)
    assert connection.loss == {}


_ALONE = [bytes([byte]) for byte in range(0x21, 0x7F) if byte not in b"\"'"]
PLAIN_WORDS = st.lists(st.sampled_from(_ALONE), max_size=MOST + 1).map(b"".join)
QUOTED = st.tuples(st.sampled_from([b"'", b'"']), st.text("ab =", max_size=9).map(str.encode))


@given(PLAIN_WORDS.map(lambda name: (b"", name or b"x")) | QUOTED, SIZES)
@example((b'"', b"a\\x41"), [1])
@example((b"'", b"a\\' b"), [])
@example((b"", b"x" * MOST), [9])
@example((b"", b"x" * (MOST + 1)), [])
def test_a_plain_line_names_as_an_array_does(quoted: tuple[bytes, bytes], sizes: list[int]) -> None:
    """Without quotes each character stands for itself; quotes with a backslash are not parsed."""
    quote, name = quoted
    connection = Connection()
    for piece in split(b"client  setname\t" + quote + name + quote + b" \r\n", sizes, 8192):
        connection.receive(piece)
    connection.reply(OK)
    is_read = len(name) <= MOST and not (quote and b"\\" in name)
    assert connection.names == [name if is_read else b""]


@given(st.binary(max_size=400), SIZES, st.booleans())
def test_hostile_bytes_are_bounded(data: bytes, sizes: list[int], is_new: bool) -> None:
    connection = Connection(is_new=is_new)
    for piece in split(data, sizes, 8192):
        connection.receive(piece)
        connection.reply(OK)
    assert all(len(name) <= MOST for name in connection.names)


def test_no_transaction_where_its_beginning_was_refused() -> None:
    """The server refused MULTI, so it then applied the name at once."""
    connection = Connection()
    for command, reply in (((b"MULTI",), ERROR), ((b"CLIENT", b"SETNAME", b"a=1"), OK)):
        connection.receive(resp(*command))
        connection.reply(reply)
    assert connection.names == [b"a=1"]
    connection.receive(resp(b"CLIENT", b"SETNAME", b"b=1") + resp(b"GET", b"a:1"))
    connection.reply(OK + b"$-1\r\n")
    assert connection.names == [b"a=1", b"b=1"]


# ---- redis shapes: the kernel's hash and the text agree, and no value is shown -------------------

_PARTS = st.sampled_from(b"user : - _ ? 1 42 cafe deadbeef a1 1a Z \xff".split())
KEYS = st.one_of(
    st.binary(max_size=80), st.lists(_PARTS, max_size=24).map(b"".join), st.uuids().map(str)
).map(lambda key: key.encode() if isinstance(key, str) else key)


@cache
def _library() -> ctypes.CDLL:
    loaded = compiled("tests/support/fuzz/shape_host.c")
    loaded.redis_pattern_host.restype = ctypes.c_uint64
    loaded.redis_pattern_host.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]
    return loaded


def kernel_hash(key: bytes) -> int:
    return int(_library().redis_pattern_host(key, len(key), 1))


def commands_of(*commands: tuple[bytes, ...]) -> bytes:
    """Commands in the form the kernel side reports."""
    out = b""
    for parts in commands:
        out += b"*%d\r\n" % len(parts)
        out += b"".join(b"$%02d\r\n%s\r\n" % (len(part), part) for part in parts)
    return out


@given(KEYS, KEYS)
@example(b"?", b"1")
@example(b"a-1", b"a-1-1")
@example(b"3f2b8c1e-ab12-beef-9c1d-aabbccddeeff", b"7")
@example(b"x" * 63, b"x" * 64)
@example(b"x" * 63 + b"1", b"x" * 63 + b"2")
def test_equal_hash_and_equal_pattern_are_the_same(first: bytes, second: bytes) -> None:
    """Each implies the other, except for a literal "?": in the text it equals a placeholder, in the
    hash it does not."""
    hashes, texts = (
        kernel_hash(first) == kernel_hash(second),
        key_pattern(first) == key_pattern(second),
    )
    assert texts or not hashes
    if b"?" not in first + second:
        assert hashes == texts


@given(KEYS, st.lists(st.integers(0, 9), min_size=80, max_size=80))
def test_digits_make_no_difference(key: bytes, digits: list[int]) -> None:
    """Another number in the same place: same pattern, same hash, and no digit is shown."""
    other = bytes(
        ord("0") + digits[i % 80] if chr(b).isdigit() and b < 0x80 else b for i, b in enumerate(key)
    )
    assert key_pattern(other) == key_pattern(key)
    assert kernel_hash(other) == kernel_hash(key)
    assert not any(c.isdigit() and c.isascii() for c in key_pattern(key))


@given(st.binary(max_size=300), st.booleans())
def test_hostile_text_is_bounded_and_printable(text: bytes, truncated: bool) -> None:
    shape = fingerprint(text, registry.dialect("redis"), truncated)
    assert shape.text.isprintable()
    assert len(shape.text) <= 4096


@given(
    st.lists(st.tuples(st.sampled_from([b"GET", b"SET"]), KEYS.map(lambda k: k[:60])), max_size=7)
)
def test_no_key_forges_another_command(commands: list[tuple[bytes, bytes]]) -> None:
    """The parser follows lengths: what looks like a command inside a key is part of the key."""
    together = redis_shape(commands_of(*commands), False)
    apart = [redis_shape(commands_of(command), False) for command in commands]
    runs = [shape for i, shape in enumerate(apart) if not i or shape != apart[i - 1]]
    assert together == ("; ".join(runs) if runs else "…")


@pytest.mark.parametrize(
    ("key", "pattern"),
    [
        (b"user:1000:cart", "user:?:cart"),
        (b"session:3f2b8c1e-ab12-beef-9c1d-aabbccddeeff", "session:?"),
        (b"page:deadbeefcafe", "page:?"),
        (b"aZ3kP9q", "?"),
        (b"\xff\x00:x", "?:x"),
        (b"", ""),
        (b"k" * 64, "k" * 64 + "…"),
    ],
)
def test_key_patterns(key: bytes, pattern: str) -> None:
    assert key_pattern(key) == pattern


@pytest.mark.parametrize(
    ("name", "key", "shape"),
    [
        (b"get", b"user:1", "GET user:?"),
        (b"PING", b"hello", "PING"),
        (b"AUTH", b"hunter", "AUTH"),
        (b"config", b"SET", "CONFIG SET"),
        (b"JSON.GET", b"doc:7", "JSON.GET doc:?"),
        (b"json.hunter2", b"doc:7", "(unknown command)"),
        (b"hunter", None, "(unknown command)"),
    ],
)
def test_command_shapes(name: bytes, key: bytes | None, shape: str) -> None:
    assert command_shape(name, key) == shape
