# SPDX-License-Identifier: Apache-2.0
"""Redis shapes: the kernel's hash and the text agree, and no value is shown."""

from __future__ import annotations

import ctypes
from functools import cache

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from host_library import compiled
from qjoule.servers import registry
from qjoule.servers.redis.dialect import command_shape, redis_shape
from qjoule.servers.shapes import fingerprint
from qjoule.shapes.keys import KEY_BYTES, NAME_BYTES, key_pattern

_PARTS = st.sampled_from(b"user : - _ ? 1 42 cafe deadbeef a1 1a Z \xff".split())
KEYS = st.one_of(
    st.binary(max_size=80), st.lists(_PARTS, max_size=24).map(b"".join), st.uuids().map(str)
).map(lambda key: key.encode() if isinstance(key, str) else key)


@cache
def _library() -> ctypes.CDLL:
    loaded = compiled("tests/support/fuzz/redis_host.c")
    loaded.redis_pattern_host.restype = ctypes.c_uint64
    loaded.redis_pattern_host.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]
    return loaded


def kernel_hash(key: bytes) -> int:
    return int(_library().redis_pattern_host(key, len(key), 1))


def resp(*commands: tuple[bytes, ...]) -> bytes:
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
def test_equal_hash_and_equal_pattern_are_the_same(one: bytes, other: bytes) -> None:
    """Both ways, except for a literal "?": in the text it equals a placeholder, in the hash it does
    not.
    """
    hashes, texts = kernel_hash(one) == kernel_hash(other), key_pattern(one) == key_pattern(other)
    assert texts or not hashes
    if b"?" not in one + other:
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


@given(st.uuids(), st.uuids())
def test_uuids_are_one_mark(one: object, other: object) -> None:
    assert key_pattern(b"s:%s:x" % str(one).encode()) == "s:?:x"
    assert kernel_hash(b"s:%s:x" % str(one).encode()) == kernel_hash(
        b"s:%s:x" % str(other).encode()
    )


@given(st.binary(max_size=300), st.booleans())
def test_hostile_text_is_bounded_and_printable(text: bytes, truncated: bool) -> None:
    shape = fingerprint(text, registry.dialect("redis"), truncated)
    assert shape.text.isprintable()
    assert len(shape.text) <= 4096


@given(st.binary(max_size=NAME_BYTES), KEYS.map(lambda key: key[:KEY_BYTES]))
def test_what_a_client_calls_its_command_is_not_shown(name: bytes, key: bytes) -> None:
    shape = redis_shape(resp((name, key)), False)
    known = redis_shape(resp((b"GET", key)), False).removeprefix("GET ")
    assert shape in {"(unknown command)", name.decode("latin-1").upper()} or shape.endswith(known)


@given(
    st.lists(st.tuples(st.sampled_from([b"GET", b"SET"]), KEYS.map(lambda k: k[:60])), max_size=7)
)
def test_no_key_forges_another_command(commands: list[tuple[bytes, bytes]]) -> None:
    """The parser follows lengths: what looks like a command inside a key is part of the key."""
    whole = redis_shape(resp(*commands), False)
    apart = [redis_shape(resp(command), False) for command in commands]
    runs = [shape for i, shape in enumerate(apart) if not i or shape != apart[i - 1]]
    assert whole == ("; ".join(runs) if runs else "…")


@pytest.mark.parametrize(
    ("key", "pattern"),
    [
        (b"user:1000:cart", "user:?:cart"),
        (b"user_12_name", "user_?_name"),
        (b"session:3f2b8c1e-ab12-beef-9c1d-aabbccddeeff", "session:?"),
        (b"page:deadbeefcafe", "page:?"),
        (b"2024-01-31", "?"),
        (b"10.0.0.1", "?.?.?.?"),
        (b"aZ3kP9q", "?"),
        (b"{user:7}.cart", "{user:?}.cart"),
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
        (b"EVAL", b"return secret", "EVAL"),
        (b"config", b"SET", "CONFIG SET"),
        (b"CLIENT", b"hunter", "CLIENT"),
        (b"PUBLISH", b"news:7", "PUBLISH news:?"),
        (b"FCALL", b"charge", "FCALL charge"),
        (b"JSON.GET", b"doc:7", "JSON.GET doc:?"),
        (b"json.hunter2", b"doc:7", "(unknown command)"),
        (b"hunter", None, "(unknown command)"),
    ],
)
def test_command_shapes(name: bytes, key: bytes | None, shape: str) -> None:
    assert command_shape(name, key) == shape


def test_a_request_of_several_commands() -> None:
    text = b"*1\r\n$05\r\nMULTI\r\n" + b"*2\r\n$04\r\nINCR\r\n$03\r\nh:1\r\n" * 2
    assert redis_shape(text, False) == "MULTI; INCR h:?"
    assert redis_shape(text, True) == "MULTI; INCR h:?; …"


@pytest.mark.parametrize(
    "text", [b"", b"*2\r\n$03\r\nGET\r\n", b"*9\r\n", b"GET user:1", b"\xff" * 99]
)
def test_text_that_the_kernel_does_not_make(text: bytes) -> None:
    assert redis_shape(text, False) == "…"
