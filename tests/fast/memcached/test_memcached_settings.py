# SPDX-License-Identifier: Apache-2.0
"""What is read from a memcached's command line, and how its commands are displayed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from qjoule.servers.candidate import Candidate
from qjoule.servers.memcached.support import encryption
from qjoule.servers.memcached.wire import memcached_shape


def _hides(*arguments: str) -> bool | None:
    command_line = ("memcached", *arguments)
    return encryption(cast(Candidate, SimpleNamespace(arguments=command_line))).value


@pytest.mark.parametrize(
    ("arguments", "hides"),
    [
        ((), False),
        (("-Z",), True),
        (("-vvZ",), True),
        (("--enable-ssl",), True),
        (("-U", "11211"), True),
        (("-U", "0"), False),
        (("-p", "-Z"), False),  # the value of -p, even if unusual
        (("--udp-port=11211",), True),
    ],
)
def test_what_hides_requests(arguments: tuple[str, ...], hides: bool) -> None:
    assert _hides(*arguments) is hides


def test_a_command_line_that_cannot_be_read_is_not_known() -> None:
    assert encryption(cast(Candidate, SimpleNamespace(arguments=()))).value is None


def _resp(*arguments: bytes) -> bytes:
    parts = b"".join(b"$%02d\r\n%s\r\n" % (len(part), part) for part in arguments)
    return b"*%d\r\n" % len(arguments) + parts


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        (_resp(b"get", b"user:1"), "get user:?"),
        (_resp(b"set", b"a1") + _resp(b"get", b"a1"), "set a?; get a?"),
        (_resp(b"stats", b"secret"), "stats"),
        (_resp(b"hunter2", b"secret"), "(unknown command)"),
        (b"", "…"),
        (b"\xff*2\r\n", "…"),
    ],
)
def test_shapes(text: bytes, shape: str) -> None:
    assert memcached_shape(text, False) == shape
