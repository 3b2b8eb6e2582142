# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL's process titles: what they mean, and when they are read."""

from __future__ import annotations

import io

import numpy as np
import pytest

import fake_tracer as ft
from qjoule.contract import Block, SessionEvent, TaskEvent
from qjoule.servers.postgres.wire import DECODING, role_of_title, session_of_title
from qjoule.stream.blocks import encode_block
from qjoule.stream.process_titles import ProcessTitleStream

assert DECODING.titles is not None
SERVERS = {1: DECODING.titles}


@pytest.mark.parametrize(
    ("title", "role"),
    [
        ("postgres: checkpointer ", "checkpointer"),
        ("postgres: 15/main: checkpointer", "checkpointer"),
        ("postgres: 15/main: autovacuum worker shop", "autovac worker"),
        ("postgres: walsender replica 10.0.0.7(4711) streaming 0/3000148", "walsender"),
        ("postgres: postgres shop [local] idle", "backend"),
        ("postgres: postgres shop ::1(4711)", "backend"),
        # Users and databases may have any name.
        ("postgres: checkpointer shop [local] idle", "backend"),
        ("postgres: \x1b[31mworker", "[31mworker"),
        ("postgres: arbeiter\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4\u00e4", "arbeiter???????"),
        # No title: the main process, a child without one yet, a process that has ended.
        ("/usr/lib/postgresql/15/bin/postgres -D /data", ""),
        ("", ""),
    ],
)
def test_titles(title: str, role: str) -> None:
    assert role_of_title(title) == role
    assert len(role) <= 15


def task(t_ns: int, pid: int, event: TaskEvent, server: int = 1, tgid: int = 0) -> ft.Records:
    row = {"t_ns": t_ns, "pid": pid, "tgid": tgid or pid, "event": event, "server": server}
    return ft.records(Block.TASK, [{**row, "comm": b"postgres"}])


def stream_of(*events: tuple[int, ft.Records | None], titles: dict[int, str]) -> ProcessTitleStream:
    """Events of a stream with their times; those without a record have another kind."""
    blocks = [ft.head()]
    for t_ns, records in events:
        kind = Block.FLUSH if records is None else Block.TASK
        blocks.append(encode_block(kind, records, t_ns=t_ns))
    return ProcessTitleStream(
        io.BytesIO(b"".join(blocks)), SERVERS, lambda pid: titles.get(pid, "")
    )


def renamed(stream: ProcessTitleStream) -> list[tuple[int, int, bytes]]:
    found = []
    for frame in stream:
        if frame.kind is Block.TASK:
            for event in frame.records[frame.records["event"] == TaskEvent.RENAME]:
                found.append((int(event["t_ns"]), int(event["pid"]), bytes(event["comm"])))
    return found


def test_a_title_that_comes_late_is_waited_for() -> None:
    answers = iter(["/usr/bin/postgres -D /data", "", "postgres: walwriter"])
    blocks = [ft.head(), encode_block(Block.TASK, task(5, 7, TaskEvent.ALIVE), t_ns=5)]
    blocks += [encode_block(Block.FLUSH, t_ns=t * 10_000_000) for t in range(1, 9)]
    stream = ProcessTitleStream(io.BytesIO(b"".join(blocks)), SERVERS, lambda _pid: next(answers))
    assert renamed(stream) == [(5, 7, b"walwriter")]


@pytest.mark.parametrize(
    "events",
    [
        # Ended before its title could be read.
        [(1, task(1, 7, TaskEvent.FORK)), (2, task(2, 7, TaskEvent.EXIT))],
        # A process of another server, and a thread.
        [(1, task(1, 7, TaskEvent.FORK, server=2))],
        [(1, task(1, 7, TaskEvent.FORK, tgid=6))],
        # By now it runs another program.
        [(1, task(1, 7, TaskEvent.FORK)), (2, task(2, 7, TaskEvent.EXEC, server=0))],
    ],
)
def test_who_is_not_asked(events: list[tuple[int, ft.Records]]) -> None:
    titles = {7: "postgres: checkpointer"}
    looks = [(10_000_000, None), (20_000_000, None)]
    # All events come in one block, before titles are first read.
    block = np.concatenate([records for _, records in events])
    assert renamed(stream_of((1, block), *looks, titles=titles)) == []


@pytest.mark.parametrize(
    ("title", "whose"),
    [
        ("postgres: bob shop [local] idle", ("bob", "shop")),
        ("postgres: 15/main: bob shop 127.0.0.1(5432) SELECT waiting", ("bob", "shop")),
        # Names with spaces, and those that look like the rest of a title.
        ("postgres: bob the builder shop [local] idle", None),
        ("postgres: alice games 10.0.0.7(1) shop [local] idle", None),
        # These do not belong to a client.
        ("postgres: walsender replica 10.0.0.7(4711) streaming 0/3000148", None),
    ],
)
def test_users_and_databases(title: str, whose: tuple[str, str] | None) -> None:
    assert session_of_title(title) == whose


def session_frames(event: SessionEvent, server: int, title: str) -> list[tuple[int, bytes]]:
    """(event, text) of what a stream reports about a session."""
    record = {"session": 1, "tgid": 7, "pid": 7, "event": event, "server": server}
    records = ft.records(Block.SESSION, [record])
    blocks = [ft.head(), encode_block(Block.SESSION, records, t_ns=6)]
    stream = ProcessTitleStream(io.BytesIO(b"".join(blocks)), SERVERS, lambda _pid: title)
    frames = [frame for frame in stream if frame.kind is Block.SESSION]
    return [(int(frame.records["event"][0]), frame.text) for frame in frames]


def test_a_session_whose_login_was_not_seen() -> None:
    title = "postgres: bob shop [local] SELECT"
    met, opened = SessionEvent.MET, SessionEvent.OPEN
    told = [(met, b""), (SessionEvent.USER, b"bob\0shop\0")]
    assert session_frames(met, 1, title) == told
    assert session_frames(met, 2, title) == [(met, b"")]
    assert session_frames(opened, 1, title) == [(opened, b"")]
    assert session_frames(met, 1, "") == [(met, b"")]
    assert session_frames(met, 1, "postgres: b s [local] c [local]") == [(met, b"")]


def test_a_title_that_its_event_carries() -> None:
    """The process may have gone, and another may have its number."""
    record = {"session": 1, "tgid": 7, "event": SessionEvent.MET, "server": 1, "text_bytes": 33}
    text = b"postgres: bob shop [local] SELECT"
    block = encode_block(Block.SESSION, ft.records(Block.SESSION, [record]), text=text, t_ns=6)
    asked = "postgres: eve games [local] SELECT"
    stream = ProcessTitleStream(io.BytesIO(ft.head() + block), SERVERS, lambda _pid: asked)
    frames = [frame.text for frame in stream if frame.kind is Block.SESSION]
    assert frames == [text, b"bob\0shop\0"]
