# SPDX-License-Identifier: Apache-2.0
"""Servers that exit or run untraced are noticed from the kernel's task events. Also: whose
processes the reattach helper looks at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from fake_tracer import records
from qjoule.contract import Block, OwnerKind, SessionEvent, TaskEvent
from qjoule.servers.processes import ROOT, Owner, Trust
from qjoule.session.turns import MAX_WAITING_OF_ONE, PAUSE_S, TRIES, NotReadyError, Turns
from qjoule.stream.context import Followed
from qjoule.stream.watch import CONFIRM_NS, MAX_CHANGES, Watch
from qjoule.trace.meta import Server

S = 1_000_000_000
Events = list[tuple[int, int, TaskEvent, dict[str, Any]]]
SERVER = Server(id=1, name="shop:3306", kind="shopdb", no_symbol="no symbols")


class Lookout:
    """Knows servers called shopd; `tools` are processes with that name that serve nobody."""

    def __init__(self, tools: Iterable[int] = ()) -> None:
        self.tools = set(tools)

    def may_serve(self, comm: str) -> bool:
        return comm == "shopd"

    def serves(self, pid: int, comm: str) -> bool:
        return comm == "shopd" and pid not in self.tools


def events(*rows: tuple[int, int, TaskEvent, dict[str, Any]]) -> Any:
    """(time, pid, event, further fields)"""
    shared = {"owner_kind": OwnerKind.PROCESS, "comm": b"shopd"}
    return records(
        Block.TASK,
        [
            {**shared, "t_ns": t_ns, "pid": pid, "tgid": pid, "event": event, **fields}
            for t_ns, pid, event, fields in rows
        ],
    )


TRACED = {"server": 1, "owner_kind": OwnerKind.SERVER}


def watched(*rows: tuple[int, int, TaskEvent, dict[str, Any]], **options: Any) -> Watch:
    watch = Watch([SERVER], options.pop("lookout", Lookout()), **options)
    watch.tasks(events((0, 100, TaskEvent.ALIVE, TRACED), *rows))
    return watch


def changes_of(watch: Watch, t_ns: int = 60 * S) -> list[tuple[str, str, int | None, int | None]]:
    watch.advance(t_ns)
    return [(change.what, change.name, change.t_ns, change.until_ns) for change in watch.changes]


def test_what_it_forks_belongs_to_it_with_its_cpu_time() -> None:
    rows: Events = [
        (6 * S, 200, TaskEvent.EXEC, {}),
        (7 * S, 201, TaskEvent.FORK, {"parent_tgid": 200}),
        (7 * S, 300, TaskEvent.FORK, {"parent_tgid": 1, "comm": b"sh"}),
    ]
    watch = watched(*rows)
    other = {"owner_kind": OwnerKind.PROCESS}
    pieces: list[dict[str, Any]] = [
        {"t0_ns": 6 * S, "t1_ns": 6 * S + 5, "pid": 200, "tgid": 200, **other},
        {"t0_ns": 7 * S, "t1_ns": 7 * S + 20, "pid": 999, "tgid": 201, **other},
        {"t0_ns": 8 * S, "t1_ns": 8 * S + 70, "pid": 300, "tgid": 300, **other},
    ]
    watch.ran(records(Block.SEGMENT, pieces))
    assert watch.advance(20 * S) == {200, 201}
    assert [change.cpu_ns for change in watch.changes] == [25]
    assert watch.process_of(201) == watch.process_of(200) == "shopd (untraced, pid 200)"
    assert watch.process_of(300) == ""


class Follower:
    """Answers what a test has put into it."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.answers: list[Followed] = []

    def ask(self, pid: int) -> None:
        self.asked.append(pid)

    def take(self) -> list[Followed]:
        answers, self.answers = self.answers, []
        return answers


GONE = (5 * S, 100, TaskEvent.EXIT, TRACED)
UNTRACED: tuple[int, int, TaskEvent, dict[str, Any]] = (6 * S, 200, TaskEvent.EXEC, {})


def test_a_server_that_is_followed_is_no_longer_untraced() -> None:
    new = Server(id=1, name="shop:3306", kind="shopdb", version="2.0", exe="/opt/shopd")
    follower = Follower()
    watch = watched(GONE, UNTRACED, follower=follower)
    learnt: list[Server] = []
    watch.learnt.append(learnt.append)
    watch.advance(8 * S)
    assert follower.asked == [200]
    assert watch.untraced_now(200) == "shopd (untraced, pid 200)"
    watch.tasks(events((9 * S, 200, TaskEvent.ALIVE, TRACED)))
    follower.answers = [Followed(200, new), Followed(200, new, attached=True)]
    assert changes_of(watch) == [
        ("exited", "shop:3306", 5 * S, 9 * S),
        ("untraced", "shopd", 6 * S, 9 * S),
        ("followed", "shop:3306", 9 * S, None),
    ]
    assert learnt == [new]
    assert watch.untraced_now(200) == ""
    # What it used before was not seen as queries: it keeps that name.
    assert watch.process_of(200) == "shopd (untraced, pid 200)"


def test_a_server_that_became_a_daemon_is_followed() -> None:
    """`shopd --daemonize`: what was started forks the server, and ends."""
    follower = Follower()
    rows: Events = [
        (6 * S, 201, TaskEvent.FORK, {"parent_tgid": 200}),
        (6 * S + 1000, 200, TaskEvent.EXIT, {}),
    ]
    watched(GONE, UNTRACED, *rows, follower=follower, lookout=Lookout(tools=[200])).advance(8 * S)
    assert follower.asked == [201]


def test_hostile_processes_are_bounded() -> None:
    follower = Follower()
    watch = watched(follower=follower)
    for number in range(3 * MAX_CHANGES):
        t_ns = number * 2 * S
        watch.tasks(events((t_ns, 1000 + number, TaskEvent.EXEC, {})))
        watch.advance(t_ns + CONFIRM_NS)
    assert len(watch.changes) == MAX_CHANGES + 1
    assert watch.changes[-1].name == "others"
    assert len(follower.asked) == 3 * MAX_CHANGES, "a real one may be among them"
    watch.tasks(events((t_ns + S, 1000, TaskEvent.EXIT, {}), (t_ns + S, 9, TaskEvent.EXEC, {})))
    watch.advance(t_ns + S + CONFIRM_NS)
    assert watch.changes[-2].pid == 9, "it has the place of one that has ended"


@pytest.mark.parametrize(
    ("rows", "changes"),
    [
        ([], []),
        ([GONE], [("exited", "shop:3306", 5 * S, None)]),
        ([GONE, (7 * S, 101, TaskEvent.EXEC, TRACED)], [("exited", "shop:3306", 5 * S, 7 * S)]),
        # A worker that ends, and tools with the server's file or name, are no change.
        ([(S, 101, TaskEvent.FORK, TRACED), (4 * S, 101, TaskEvent.EXIT, TRACED)], []),
        ([(S, 200, TaskEvent.EXEC, {}), (S + 1000, 200, TaskEvent.EXIT, {})], []),
        ([(S, 300, TaskEvent.EXEC, {})], []),
    ],
)
def test_exits_of_servers_are_changes_and_those_of_tools_and_workers_are_not(
    rows: Events, changes: list[tuple[str, str, int, int | None]]
) -> None:
    watch = watched(*rows, lookout=Lookout(tools=[300]))
    assert changes_of(watch) == changes


def test_a_replaced_executable_runs_untraced_once_it_has_lived_long_enough() -> None:
    watch = watched(GONE, UNTRACED)
    assert changes_of(watch, 6 * S + CONFIRM_NS - 1) == [("exited", "shop:3306", 5 * S, None)]
    assert watch.process_of(200) == ""
    assert watch.advance(6 * S + CONFIRM_NS) == {200}
    assert changes_of(watch)[1] == ("untraced", "shopd", 6 * S, None)
    assert watch.process_of(200) == "shopd (untraced, pid 200)"
    watch.tasks(events((9 * S, 200, TaskEvent.EXIT, {})))
    assert changes_of(watch)[1] == ("untraced", "shopd", 6 * S, 9 * S)


def test_reasons_are_given_why_a_server_is_not_followed_or_sessions_are_missed() -> None:
    follower = Follower()
    unseen = {"shop:3306": "sessions of the Y Protocol"}
    watch = watched(UNTRACED, follower=follower, unseen=unseen)
    for event in (SessionEvent.OPEN, SessionEvent.OPAQUE):
        watch.sessions(records(Block.SESSION, [{"t_ns": 4 * S, "event": event, "server": 1}]))
    watch.advance(8 * S)
    follower.answers = [Followed(200, why="no symbols")]
    watch.advance(9 * S)
    assert [(change.what, change.name, change.why) for change in watch.changes] == [
        ("unseen", "shop:3306", "sessions of the Y Protocol"),
        ("hidden", "shop:3306", "no symbols"),
        ("untraced", "shopd", "no symbols"),
    ]


# ---- whose processes the reattach helper examines ------------------------------------------------

UNIT = Owner(0, "redis.service", Trust.SERVICE)
USER = Owner(1001, "", Trust.STRANGER)
OTHER = Owner(1002, "", Trust.STRANGER)


class Looks:
    """A clock, and the looks that a reattach helper makes of processes that never become ready."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.looked: list[int] = []
        self.refused: list[int] = []
        self.turns = Turns(self.look)

    def look(self, pid: int, last: bool) -> Iterator[Followed]:
        self.looked.append(pid)
        if not last:
            raise NotReadyError("it listens on nothing")
        yield Followed(pid, why="it is no server that listens")

    def run(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        while (wait_s := self.turns.wait_s(self.now_s)) is not None:
            if self.now_s + wait_s > end_s:
                break
            self.now_s += wait_s
            answers = list(self.turns.take(self.now_s))
            self.refused += [answer.pid for answer in answers if "too many programs" in answer.why]
        self.now_s = end_s


def test_nobody_uses_up_the_keepers_looks() -> None:
    """Held processes of two users took all 64 looks of a recording; a service's had none."""
    looks = Looks()
    for number in range(2 * MAX_WAITING_OF_ONE):
        looks.turns.add(1000 + number, USER, looks.now_s)
        looks.turns.add(2000 + number, OTHER, looks.now_s)
    looks.run(200.0)
    by_user = Counter(pid // 1000 for pid in looks.looked)
    assert by_user[1] + by_user[2] <= 32 + 200 / 20 and min(by_user.values()) >= 16
    assert len(looks.refused) > MAX_WAITING_OF_ONE, "nobody's wait for ever"
    looks.looked.clear()
    for pid, owner in (9, UNIT), (8, ROOT):
        looks.turns.add(pid, owner, looks.now_s)
    looks.run(2 * TRIES * PAUSE_S)
    assert Counter(looks.looked) == {8: TRIES, 9: TRIES} and looks.looked[0] == 8
    for hour in range(1, 4):  # whatever happened before
        looks.run(3600.0)
        looks.turns.add(3000 + hour, USER, looks.now_s)
        looks.run(60.0)
        assert looks.looked.count(3000 + hour) == TRIES
