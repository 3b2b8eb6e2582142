# SPDX-License-Identifier: Apache-2.0
"""The shim's fast path, for a call whose data is already recorded: when it is taken and
when not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from qjoule_drivers import channel as channel_module
from qjoule_drivers import tag
from qjoule_drivers.channel import Channel, Peer
from qjoule_drivers.context import innermost, outermost
from qjoule_drivers.shims import cassandra, psycopg, pymongo, pymysql, redis
from qjoule_drivers.standing import Standing
from tag_listener import Listener, listening

LATER_NS = 1 << 62


class Connection:
    """The part of a driver's connection that a wrapper uses."""

    def __init__(self) -> None:
        self._qjoule_peer = Peer({"db.system.name": "x"})
        self._qjoule_call = 0
        self._sock = object()
        self.health_check_interval = 0


def _cassandra(call: Any, connection: Connection) -> Callable[[], object]:
    return lambda: call(connection, None, 7, None)


def _with_two(call: Any, connection: Connection) -> Callable[[], object]:
    return lambda: call(connection, None, None)


#: The wrapper for a call of each driver, and how it is called.
WRAPPED = {
    "cassandra": (cassandra.SHIM, cassandra._send_msg, _cassandra),
    "psycopg": (psycopg.SHIM, psycopg._wait, _with_two),
    "pymongo": (pymongo.SHIM, pymongo._send_message, _with_two),
    "pymysql": (pymysql.SHIM, pymysql._execute_command, _with_two),
    "redis": (redis.SHIM, redis._send_packed_command, _with_two),
}


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    with listening(tmp_path / "tags.sock") as found:
        yield found


@pytest.fixture(params=list(WRAPPED))
def call(
    request: pytest.FixtureRequest, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], object]:
    """A call through the driver's wrapper, to a recorder that wants only changes."""
    shim, wrap, called = WRAPPED[request.param]
    channel = Channel(str(listener.path))
    monkeypatch.setattr(channel_module, "channel", channel)
    for module in (cassandra, psycopg, pymongo, pymysql, redis):
        monkeypatch.setattr(module, "channel", channel)
    monkeypatch.setattr(shim, "active", True)
    channel.begin(None)
    listener.only().want_changes()
    channel.check_ns = 0
    channel.begin(None)
    channel.check_ns = LATER_NS
    return called(wrap(lambda *_: None), Connection())


def _begun(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Records calls that did not take the fast path, from now on."""
    begun: list[object] = []
    begin = Channel.begin

    def counted(channel: Channel, *args: Any) -> int:
        begun.append(args)
        return begin(channel, *args)

    monkeypatch.setattr(Channel, "begin", counted)
    return begun


def test_the_short_way_is_taken_while_nothing_changes(
    call: Callable[[], object], listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = _begun(monkeypatch)
    for endpoint in ("a", "b"):
        with tag(endpoint=endpoint):
            for _ in range(3):
                call()
    assert len(begun) == 2
    assert [begin.tags for begin in listener.only().begins] == [
        {"endpoint": "a"},
        {"endpoint": "b"},
    ]


def test_after_a_gap_all_is_told_again(
    call: Callable[[], object], listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tag(endpoint="a"):
        call()
        begun = _begun(monkeypatch)
        channel_module.channel.interrupt()
        call()
        call()
    assert len(begun) == 1
    assert [begin.tags["endpoint"] for begin in listener.only().begins] == ["a", "a"]


def test_the_recorder_is_looked_for_when_it_is_time(
    call: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    call()
    begun = _begun(monkeypatch)
    channel_module.channel.check_ns = 0
    call()
    assert len(begun) == 1


def test_what_ended_never_stands_again() -> None:
    standing = Standing(innermost, LATER_NS)
    assert standing.frame() is innermost()
    standing.end()
    standing.until_ns = LATER_NS  # by a thread that has just checked
    assert standing.frame() is not innermost()


def test_a_connection_that_told_before_a_gap_has_not_told(listener: Listener) -> None:
    """For a thread that is stopped between writing its record and noting that it did."""
    channel, peer = Channel(str(listener.path)), Peer({})
    channel.begin(None)
    before = channel.to
    channel.interrupt()
    peer.frame, peer.to = outermost, before
    assert peer.to.frame() is not peer.frame
    assert channel.begin(peer)
