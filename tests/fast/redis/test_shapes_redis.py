# SPDX-License-Identifier: Apache-2.0
"""Redis commands as shapes, case by case."""

from __future__ import annotations

import pytest

from qjoule.servers import registry
from qjoule.servers.redis.dialect import command_shape, redis_shape
from qjoule.servers.shapes import fingerprint, summary
from qjoule.shapes.keys import key_pattern


@pytest.mark.parametrize(
    ("key", "pattern"),
    [
        (b"user:1000:cart", "user:?:cart"),
        (b"user12", "user?"),
        (b"user_12_name", "user_?_name"),
        (b"session:3f2b8c1e-ab12-beef-9c1d-aabbccddeeff", "session:?"),
        (b"page:deadbeefcafe", "page:?"),
        (b"cafe:open", "cafe:open"),
        (b"2024-01-31", "?"),
        (b"10.0.0.1", "?.?.?.?"),
        (b"aZ3kP9q", "?"),
        (b"{user:7}.cart", "{user:?}.cart"),
        (b"\xff\x00:x", "?:x"),
        (b"", ""),
        (b"k" * 64, "k" * 64 + "…"),
        (b"k" * 63, "k" * 63),
    ],
)
def test_key_patterns(key: bytes, pattern: str) -> None:
    assert key_pattern(key) == pattern


@pytest.mark.parametrize(
    ("name", "key", "shape"),
    [
        (b"get", b"user:1", "GET user:?"),
        (b"PING", None, "PING"),
        (b"PING", b"hello", "PING"),
        (b"AUTH", b"hunter", "AUTH"),
        (b"ECHO", b"hunter", "ECHO"),
        (b"EVAL", b"return secret", "EVAL"),
        (b"config", b"SET", "CONFIG SET"),
        (b"CLIENT", b"hunter", "CLIENT"),
        (b"PUBLISH", b"news:7", "PUBLISH news:?"),
        (b"FCALL", b"charge", "FCALL charge"),
        (b"JSON.GET", b"doc:7", "JSON.GET doc:?"),
        (b"json.hunter2", b"doc:7", "(unknown command)"),
        (b"hunter", None, "(unknown command)"),
        (b"hunter.two", None, "(unknown command)"),
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


def test_the_fingerprint_is_that_of_the_shape() -> None:
    one = fingerprint(b"*2\r\n$03\r\nGET\r\n$06\r\nuser:1\r\n", registry.dialect("redis"))
    other = fingerprint(b"*2\r\n$03\r\nget\r\n$08\r\nuser:777\r\n", registry.dialect("redis"))
    assert one.fingerprint == other.fingerprint
    assert summary(one) == "GET user:?"
