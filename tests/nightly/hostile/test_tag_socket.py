# SPDX-License-Identifier: Apache-2.0
"""A real recorder, and a user of the host who attacks its tag socket."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from other_user import NOBODY, other_user
from qjoule_drivers import channel as channel_module
from qjoule_drivers import tag
from servers.process import DatabaseServer
from tag_ring import greet, header, memfd
from tracing.recording import Run, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]
HELLO = b"qjoule tags 1\n"
CONNECTIONS = 1100
QUERIES = 50
WAIT_S = 60.0


def _silent(path: Path) -> object:
    """More connections than a recorder has descriptors, as fast as it accepts them."""
    made: list[socket.socket] = []
    for _ in range(CONNECTIONS):
        one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        made.append(one)
        for _ in range(1000):
            with suppress(BlockingIOError):
                one.connect(str(path))
                break
            time.sleep(0.001)
    return made


def _greeted(path: Path) -> object:
    """The same, with a ring each. A process may be rejected while it sends its greeting."""
    made = []
    for _ in range(CONNECTIONS):
        with suppress(OSError):
            made.append(greet(path, HELLO, [memfd(header() + bytes(2048 * 64))]))
    return made


def _broken(path: Path) -> object:
    """Invalid rings."""
    made = []
    for content in (b"", b"short", header()[:4095], header(slots=3), header(size=0)):
        with suppress(OSError):
            made.append(greet(path, HELLO, [memfd(content)]))
    return made


def _meet() -> None:
    """Connects to the recorder, which may have been too busy for a moment."""
    channel, deadline = channel_module.channel, time.monotonic() + WAIT_S
    while channel._recorder is None:
        assert time.monotonic() < deadline, "the recorder meets nobody"
        channel.check_ns = 0
        channel.begin(None)
        time.sleep(0.01)


@pytest.mark.parametrize("harm", [_silent, _greeted, _broken])
def test_others_are_heard(
    harm: Callable[[Path], object], redis: DatabaseServer, tags_socket: Path, tmp_path: Path
) -> None:
    with (
        recording(tmp_path / "t", "--pid", str(redis.pid)),
        other_user(NOBODY, lambda: (None, harm(tags_socket))),
        closing(redis.connect(tcp=True)) as client,
    ):
        _meet()
        for turn in range(QUERIES):
            with tag(m="honest"):
                client.set(f"m_tag_{turn}", "x")
    run = Run(tmp_path / "t")
    tags = [dict(tags or ()) for tags in run.having("m_tag_")["tags"]]
    assert tags == [{"m": "honest"}] * QUERIES
