# SPDX-License-Identifier: Apache-2.0
"""Sessions that were open before tracing began get the names that their servers tell."""

from __future__ import annotations

import io
import socket
from collections.abc import Mapping
from typing import Any

import pytest

import fake_tracer as ft
from qjoule.contract import Block, SessionEvent, TaskEvent
from qjoule.servers.mongodb.connections import named as operations_named
from qjoule.servers.mysql.connections import port_of
from qjoule.servers.mysql.unseen import NAMES as OF_MYSQL
from qjoule.servers.names_before import NamesBefore, Told, by_address, by_thread
from qjoule.servers.redis.connections import named
from qjoule.session import asker_process
from qjoule.session.asker import Asker
from qjoule.session.asker_process import ANSWER, NAMES
from qjoule.stream.blocks import Stream, encode_block
from qjoule.stream.named_before import MAX_WAITING, OFTEN, PAUSE_NS, NamedStream, Names

BY_ADDRESS = NamesBefore("none", "none", "a view")
BY_THREAD = NamesBefore("none", "none", "a view", by_thread=True)
CLIENT = bytes(10) + b"\xff\xff\x0a\x00\x00\x07"  # ::ffff:10.0.0.7


class Server:
    """Answers each question with the names that it has by then, if it `answers`."""

    def __init__(self, *told: Told, kind: NamesBefore = BY_ADDRESS, answers: bool = True) -> None:
        self.named: Mapping[int, NamesBefore] = {1: kind}
        self.told, self.answers = told, answers
        self.asked = 0
        self._open = False

    def ask_names(self, server: int) -> None:
        assert server == 1
        self.asked += 1
        self._open = True

    def take_names(self, wait_s: float = 0.0) -> list[Names]:
        if not self._open or not (self.answers or wait_s):
            return []
        self._open = False
        return [Names(1, self.told)]


def session(number: int, event: SessionEvent, t_ns: int = 1, **fields: Any) -> bytes:
    record: dict[str, Any] = {
        "session": number,
        "event": event,
        "server": 1,
        "t_ns": t_ns,
        "pid": 70,
        "port": 5,
    }
    record |= {"address": list(CLIENT), **fields}
    return encode_block(Block.SESSION, ft.records(Block.SESSION, [record]), t_ns=t_ns)


def flush(t_ns: int) -> bytes:
    return encode_block(Block.FLUSH, t_ns=t_ns)


def given(server: Server, *blocks: bytes) -> list[tuple[int, int, int, bytes]]:
    """(session, event, time, text) of each block that brings a name."""
    stream = NamedStream(Stream(io.BytesIO(ft.head() + b"".join(blocks) + ft.end(1 << 50))), server)
    frames = [frame for frame in stream if frame.kind is Block.SESSION and frame.text]
    return [
        (int(one.records[0]["session"]), int(one.records[0]["event"]), one.t_ns, one.text)
        for one in frames
    ]


MET, OPEN = SessionEvent.MET, SessionEvent.OPEN


def test_a_session_gets_the_names_of_its_connection() -> None:
    server = Server(Told("10.0.0.7 5", "app", "shop"), Told("10.0.0.7 6", "x", "y"))
    found = given(server, session(9, MET, 3), flush(4), session(9, MET, 5), flush(6))
    assert found == [(9, SessionEvent.USER, 3, b"app"), (9, SessionEvent.APPLICATION, 3, b"shop")]
    assert server.asked == 1


@pytest.mark.parametrize("port", [5, 0])
def test_a_session_is_known_by_its_thread_and_port(port: int) -> None:
    server = Server(Told("70 5", "", "tcp"), Told("70 0", "", "local"), kind=BY_THREAD)
    found = given(server, session(9, MET, port=port), flush(4))
    assert [text for *_, text in found] == [b"tcp" if port else b"local"]


def test_a_session_whose_login_was_seen_is_not_asked_for() -> None:
    server = Server(Told("10.0.0.7 5", "", "shop"))
    assert not given(server, session(9, OPEN), session(9, MET), flush(PAUSE_NS))
    assert not server.asked


def test_a_later_connection_of_the_same_client_keeps_its_own_names() -> None:
    server = Server(Told("10.0.0.7 5", "", "former"), answers=False)
    blocks = session(9, MET), flush(2), session(10, OPEN, 3), flush(4)
    assert not given(server, *blocks)


def test_a_session_met_after_the_question_waits_for_the_next() -> None:
    """The connection in the answer may be one that had its address before."""
    server = Server(Told("10.0.0.7 6", "", "shop"), answers=False)
    first, second = session(9, MET, 1), session(10, MET, 2, port=6)
    late = flush(PAUSE_NS // 2), flush(PAUSE_NS)
    found = given(server, first, second, *late)
    assert [text for *_, text in found] == [b"shop"]
    assert server.asked == 2, "the second question comes at the end"


def test_questions_become_rare() -> None:
    server = Server()
    count = 300
    blocks = [
        session(at, MET, at * PAUSE_NS, port=at % 60_000 + 1) + flush(at * PAUSE_NS + 1)
        for at in range(1, count)
    ]
    given(server, *blocks)
    assert OFTEN < server.asked < OFTEN + 10


def test_waiting_sessions_are_bounded() -> None:
    server = Server(answers=False)
    many = [session(at, MET, pid=at) for at in range(1, MAX_WAITING + 100)]
    stream = NamedStream(Stream(io.BytesIO(ft.head() + b"".join(many) + ft.end(1 << 50))), server)
    server.named = {1: BY_THREAD}
    for _ in stream:
        assert len(stream._waiting[1].frames) <= MAX_WAITING


def test_a_client_list_is_read() -> None:
    answer = (
        "id=3 addr=127.0.0.1:4711 laddr=127.0.0.1:6379 fd=8 name=shop age=2 user=default\n"
        "id=4 addr=[::1]:4712 fd=9 name=v6 age=2\n"
        "id=5 addr=[::ffff:10.0.0.7]:5 fd=9 name=mapped age=2\n"
        "id=6 addr=/run/redis.sock:0 fd=10 name=local age=2\n"
        "id=7 addr=127.0.0.1:4713 fd=11 name= age=2\n"
        "id=8 addr=127.0.0.1:x name=bad\n\nnonsense\n"
    )
    assert [(one.key, one.application) for one in named(answer)] == [
        ("127.0.0.1 4711", "shop"),
        ("::1 4712", "v6"),
        ("10.0.0.7 5", "mapped"),
    ]


def test_ports_and_keys() -> None:
    hosts = {"localhost:4711": 4711, "10.0.0.7:5": 5, "localhost": 0, "": 0, "::1": 1}
    assert {host: port_of(host) for host in hosts} == hosts
    assert by_address("::ffff:10.0.0.7", 5) == "10.0.0.7 5"
    assert by_thread(70, 0) == "70 0"


def _asker() -> tuple[Asker, socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return Asker(ours, 0, {}, {1: OF_MYSQL}), theirs


def test_names_come_together() -> None:
    asker, theirs = _asker()
    asker.ask_names(1)
    theirs.recv(100)
    head = ANSWER.pack(1, NAMES, 0)
    theirs.send(head + "70 5\0app\0shöp".encode())
    theirs.send(head + b"70 6\0too few")
    assert asker.take_names() == [], "the answer is not complete"
    theirs.send(head)
    assert asker.take_names() == [Names(1, (Told("70 5", "app", "shöp"),))]
    theirs.close()


def test_a_server_without_an_account_is_told() -> None:
    source = asker_process._Source(
        asker_process.Asked("redis:1", "redis", 1, 0, None, BY_ADDRESS), None, ""
    )
    why, last = source.answers(4, {NAMES: b""})
    assert why.endswith(b"the credentials have no [redis]")
    assert last == ANSWER.pack(4, NAMES, 0)


def _task(event: TaskEvent, pid: int, name: bytes, server: int = 1) -> bytes:
    record = {"event": event, "pid": pid, "tgid": 60, "server": server, "comm": name}
    return encode_block(Block.TASK, ft.records(Block.TASK, [record]))


BY_NAME = NamesBefore("none", "none", "a view", by_name=True)
NOWHERE: dict[str, Any] = {"address": [0] * 16, "port": 0}


def test_a_session_without_address_is_known_by_its_threads_name() -> None:
    server = Server(Told("conn7", "", "shop"), Told("10.0.0.7 5", "", "tcp"), kind=BY_NAME)
    alive = _task(TaskEvent.ALIVE, 70, b"mongod"), _task(TaskEvent.RENAME, 70, b"conn7")
    found = given(server, *alive, session(9, MET, **NOWHERE), session(8, MET), flush(4))
    assert [(number, text) for number, _, _, text in found] == [(9, b"shop"), (8, b"tcp")]


@pytest.mark.parametrize(
    "last",
    [
        _task(TaskEvent.EXIT, 70, b"conn7"),
        _task(TaskEvent.RENAME, 70, b"conn8"),
        _task(TaskEvent.FORK, 70, b"conn8", server=2),
    ],
)
def test_a_thread_that_is_gone_names_nothing(last: bytes) -> None:
    server = Server(Told("conn7", "", "shop"), kind=BY_NAME)
    server.named = {1: BY_NAME, 2: BY_NAME}
    blocks = _task(TaskEvent.ALIVE, 70, b"conn7"), last
    assert not given(server, *blocks, session(9, MET, **NOWHERE), flush(4))


def test_operations_of_mongodb_are_read() -> None:
    shop = {"desc": "conn5", "client": "10.0.0.7:5", "appName": "shop"}
    user = [{"user": "app", "db": "admin"}, {"user": "other", "db": "admin"}]
    operations: list[dict[str, Any]] = [
        {**shop, "effectiveUsers": user},
        {"desc": "conn6", "client": "[::1]:6", "effectiveUsers": user},
        {"desc": "conn7", "client": "anonymous unix socket", "appName": "local"},
        {"desc": "TTLMonitor", "appName": "itself"},
        {"desc": "conn8", "client": "10.0.0.7:8"},
        {"desc": 9, "client": None, "appName": ["x"], "effectiveUsers": [3]},
        {"desc": "conn9", "client": "10.0.0.7:x", "appName": "bad port"},
    ]
    assert list(operations_named(operations)) == [
        Told("10.0.0.7 5", "app", "shop"),
        Told("conn5", "app", "shop"),
        Told("::1 6", "app", ""),
        Told("conn6", "app", ""),
        Told("conn7", "", "local"),
        Told("conn9", "", "bad port"),
    ]
