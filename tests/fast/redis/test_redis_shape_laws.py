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
from qjoule.servers.redis.wire import command_shape, redis_shape
from qjoule.servers.shapes import fingerprint
from qjoule.shapes.keys import key_pattern

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
    whole = redis_shape(resp(*commands), False)
    apart = [redis_shape(resp(command), False) for command in commands]
    runs = [shape for i, shape in enumerate(apart) if not i or shape != apart[i - 1]]
    assert whole == ("; ".join(runs) if runs else "…")


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
