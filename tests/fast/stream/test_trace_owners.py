# SPDX-License-Identifier: Apache-2.0
"""Owners of segments: names and roles, reused pids, events that come late or never."""

from __future__ import annotations

from typing import Any

import pytest

import fake_tracer as ft
from qjoule.contract import Block, OwnerKind, TaskEvent
from qjoule.stream.owners import Owners
from qjoule.stream.thread_lifetimes import NAMES_MAX
from qjoule.trace.vocabulary import thread_role

ALIVE, FORK, EXEC, EXIT, RENAME, ROLE = TaskEvent
SERVED = {"owner_kind": OwnerKind.SERVER, "server": 1}


def tasks(*events: tuple[int, int, TaskEvent, bytes], **fields: Any) -> ft.Records:
    rows = [{"t_ns": t, "pid": p, "tgid": p, "event": e, "comm": c} for t, p, e, c in events]
    return ft.records(Block.TASK, [row | fields for row in rows])


def owners_after(*events: tuple[int, int, TaskEvent, bytes]) -> Owners:
    owners = Owners()
    owners.apply(tasks(*events))
    return owners


def resolve(owners: Owners, *spans: tuple[int, int], **fields: Any) -> list[int]:
    """Owners of segments of 1 ns that begin at (t0_ns, pid)."""
    rows = [ft.segment(t0, t0 + 1, pid, **fields) for t0, pid in sorted(spans)]
    ids: list[int] = owners.resolve(ft.records(Block.SEGMENT, rows)).tolist()
    return ids


def rows(owners: Owners) -> dict[int, dict[str, Any]]:
    return {row["owner"]: row for row in owners.take_changes().to_pylist()}


def test_a_reused_pid_is_two_owners() -> None:
    owners = owners_after((10, 5, FORK, b"one"), (20, 5, EXIT, b""), (30, 5, FORK, b"two"))
    first, same, second, also = resolve(owners, (11, 5), (25, 5), (31, 5), (40, 5))
    assert first == same != second == also, "the last slices after an exit are the dead thread's"
    by_owner = rows(owners)
    assert [by_owner[first][name] for name in ("comm", "t0_ns", "t1_ns")] == ["one", 10, 20]
    assert [by_owner[second][name] for name in ("comm", "t0_ns", "t1_ns")] == ["two", 30, None]


def test_another_role_is_another_owner_for_as_long_as_it_lasts() -> None:
    owners = owners_after((0, 4, ALIVE, b"mysqld"), (10, 5, FORK, b"mysqld"))
    owners.apply(tasks((20, 5, ROLE, b"binlog-dump"), (30, 5, ROLE, b"mysqld"), server=1))
    before, during, still, after = resolve(owners, (15, 5), (20, 5), (29, 5), (31, 5), **SERVED)
    assert during == still
    by_owner = rows(owners)
    names = [
        tuple(by_owner[owner][name] for name in ("comm", "t0_ns", "t1_ns"))
        for owner in (before, during, after)
    ]
    assert names == [("mysqld", 10, 20), ("binlog-dump", 20, 30), ("mysqld", 30, None)]


def test_a_name_that_is_told_late_is_not_that_of_a_later_role() -> None:
    owners = owners_after((10, 5, FORK, b"postgres"))
    owners.apply(tasks((20, 5, ROLE, b"walsender"), server=1))
    owners.apply(tasks((10, 5, RENAME, b"backend"), server=1))
    before, after = resolve(owners, (15, 5), (25, 5), **SERVED)
    by_owner = rows(owners)
    assert (by_owner[before]["role"], by_owner[after]["role"]) == ("backend", "walsender")


def test_events_may_come_after_their_segments() -> None:
    owners = Owners()
    (owner, _) = resolve(owners, (11, 5), (12, 5))
    owners.apply(tasks((10, 5, FORK, b"late")))
    row = rows(owners)[owner]
    assert (row["comm"], row["t0_ns"]) == ("late", 10)
    assert resolve(owners, (13, 5)) == [owner]
    owners.apply(tasks((20, 5, FORK, b"new")))
    assert resolve(owners, (21, 5)) != [owner], "a later fork is another thread's"


# ---- names of a server's threads -----------------------------------------------------------------


def renames(*events: tuple[int, TaskEvent, bytes]) -> ft.Records:
    """Events of thread 6 of server 1's process 5."""
    return tasks(*((t, 6, event, comm) for t, event, comm in events), tgid=5, server=1)


def of_thread_6(owners: Owners, *t0_ns: int) -> list[int]:
    return resolve(owners, *((t, 6) for t in t0_ns), tgid=5, **SERVED)


def test_a_servers_thread_is_an_owner_for_each_of_its_names() -> None:
    owners = owners_after((0, 5, ALIVE, b"java"))
    owners.apply(
        renames(
            (0, ALIVE, b"ReadStage-3"),
            (20, RENAME, b"MutationStage-1"),
            (30, RENAME, b"ReadStage-9"),
            (40, RENAME, b"ReadStage-4"),  # a number has no meaning
        )
    )
    ids = of_thread_6(owners, 10, 19, 20, 29, 30, 45)
    read, write = ids[0], ids[2]
    assert ids == [read, read, write, write, read, read]
    assert read != write
    by_owner = rows(owners)
    assert (by_owner[read]["role"], by_owner[write]["role"]) == ("ReadStage-?", "MutationStage-?")
    assert by_owner[write]["comm"] == "MutationStage-1"
    owners.forget(50)
    assert of_thread_6(owners, 51, 52) == [read, read]
    owners.apply(renames((60, RENAME, b"MutationStage-2")))
    assert of_thread_6(owners, 55, 61) == [read, write]


def test_owners_of_a_thread_that_takes_ever_new_names_are_bounded() -> None:
    owners = Owners()
    owners.apply(renames((0, ALIVE, b"a")))
    ids = set()
    for n in range(3 * NAMES_MAX):
        name = "".join(chr(97 + int(digit)) for digit in f"{n:04d}").encode()
        owners.apply(renames((10 * n + 10, RENAME, name)))
        ids |= set(of_thread_6(owners, 10 * n + 15))
        owners.forget(10 * n + 15)
    assert len(ids) <= NAMES_MAX


def test_a_child_that_runs_another_program_leaves_its_role_behind() -> None:
    """The kernel renames the child before it reports that the program has changed."""
    owners = Owners()
    owners.apply(tasks((1, 80, FORK, b"server"), (2, 80, RENAME, b"awk"), server=2))
    owners.apply(tasks((3, 80, EXEC, b"awk")))
    (child,) = resolve(owners, (1, 80), owner_kind=OwnerKind.SERVER, server=2)
    (program,) = resolve(owners, (3, 80))
    by_owner = rows(owners)
    assert (by_owner[child]["role"], by_owner[child]["comm"]) == ("server", "awk")
    assert (by_owner[program]["kind"], by_owner[program]["role"]) == ("process", None)


@pytest.mark.parametrize(
    ("comm", "role"),
    [
        ("worker-12", "worker-?"),
        ("GC Thread#0", "GC Thread#?"),
        ("C2 CompilerThre", "C2 CompilerThre"),
        ("pool-1-thread-22", "pool-?-thread-?"),
        ("Thread-7 (serve)", "Thread-? (serve)"),
        ("V8 DefaultWorke", "V8 DefaultWorke"),
        ("java8", "java8"),  # its process's own name
        ("", ""),
    ],
)
def test_the_number_of_a_worker_is_no_role(comm: str, role: str) -> None:
    assert thread_role(comm, "java8") == role
