# SPDX-License-Identifier: Apache-2.0
"""Owners of segments: names, reused pids, events that come late or never."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

import fake_tracer as ft
from qjoule.contract import Block, OwnerKind, TaskEvent
from qjoule.stream.lives import NAMES_MAX, NAMING_NS
from qjoule.stream.owners import EXIT_TAIL_NS, Owners
from qjoule.trace.newest import newest_owners

ALIVE, FORK, EXEC, EXIT, RENAME, ROLE = TaskEvent


def tasks(*events: tuple[int, int, TaskEvent, bytes]) -> ft.Records:
    rows = [{"t_ns": t, "pid": p, "tgid": p, "event": e, "comm": c} for t, p, e, c in events]
    return ft.records(Block.TASK, rows)


def segments(*spans: tuple[int, int], **fields: Any) -> ft.Records:
    rows = [ft.segment(t0, t0 + 1, pid, **fields) for t0, pid in sorted(spans)]
    return ft.records(Block.SEGMENT, rows)


def rows(owners: Owners) -> dict[int, dict[str, Any]]:
    return {row["owner"]: row for row in owners.take_changes().to_pylist()}


def test_idle_is_an_owner_from_the_start_and_once() -> None:
    owners = Owners()
    assert rows(owners)[0]["kind"] == "idle"
    assert rows(owners) == {}


def test_a_reused_pid_is_two_owners() -> None:
    owners = Owners()
    owners.apply(tasks((10, 5, FORK, b"one"), (20, 5, EXIT, b""), (30, 5, FORK, b"two")))
    ids = owners.resolve(segments((11, 5), (15, 5), (31, 5), (40, 5)))
    assert ids[0] == ids[1]
    assert ids[2] == ids[3]
    assert ids[0] != ids[2]
    found = rows(owners)
    one, two = found[int(ids[0])], found[int(ids[2])]
    assert (one["comm"], one["t0_ns"], one["t1_ns"]) == ("one", 10, 20)
    assert (two["comm"], two["t0_ns"], two["t1_ns"]) == ("two", 30, None)


def test_another_role_is_another_owner_for_as_long_as_it_lasts() -> None:
    owners = Owners()
    owners.apply(tasks((0, 4, ALIVE, b"mysqld"), (10, 5, FORK, b"mysqld")))
    changes = tasks((20, 5, ROLE, b"binlog-dump"), (30, 5, ROLE, b"mysqld"))
    changes["server"], changes["tgid"] = 1, 5
    owners.apply(changes)
    served = {"owner_kind": OwnerKind.SERVER, "server": 1}
    ids = owners.resolve(segments((15, 5), (20, 5), (29, 5), (31, 5), **served)).tolist()
    assert ids[1] == ids[2]
    assert len(set(ids)) == 3
    found = rows(owners)
    names = [(found[i]["comm"], found[i]["t0_ns"], found[i]["t1_ns"]) for i in sorted(set(ids))]
    assert set(names) == {("mysqld", 10, 20), ("binlog-dump", 20, 30), ("mysqld", 30, None)}


def test_a_name_that_is_told_late_is_not_that_of_a_later_role() -> None:
    owners = Owners()
    owners.apply(tasks((10, 5, FORK, b"postgres")))
    for t_ns, event, name in ((20, ROLE, b"walsender"), (10, RENAME, b"backend")):
        told = tasks((t_ns, 5, event, name))
        told["server"] = 1
        owners.apply(told)
    served = {"owner_kind": OwnerKind.SERVER, "server": 1}
    before, after = owners.resolve(segments((15, 5), (25, 5), **served)).tolist()
    found = rows(owners)
    assert (found[before]["role"], found[after]["role"]) == ("backend", "walsender")


def test_reuse_within_many_others_is_resolved_by_time() -> None:
    owners = Owners()
    rng = np.random.default_rng(3)
    forks = np.sort(rng.choice(np.arange(1, 9999), 50, replace=False)).tolist()
    owners.apply(tasks(*((t, 5, FORK, b"n%d" % i) for i, t in enumerate(forks))))
    spans = [
        (int(t), int(p))
        for t, p in zip(rng.integers(1, 10_000, 5000), rng.integers(3, 8, 5000), strict=True)
    ]
    batch = segments(*spans)
    ids = owners.resolve(batch)
    names = {owner: row["comm"] for owner, row in rows(owners).items()}
    for t0, pid, owner in zip(
        batch["t0_ns"].tolist(), batch["pid"].tolist(), ids.tolist(), strict=True
    ):
        life = sum(fork <= t0 for fork in forks) - 1
        expected = f"n{life}" if pid == 5 and life >= 0 else "?"
        assert names[owner] == expected


def test_a_thread_that_was_never_announced_still_has_an_owner() -> None:
    owners = Owners()
    ids = owners.resolve(segments((1, 9), (2, 9)))
    assert ids.tolist() == [1, 1]
    row = rows(owners)[1]
    assert (row["comm"], row["pid"], row["t0_ns"]) == ("?", 9, None)


def test_the_last_stretch_after_exit_belongs_to_the_dead() -> None:
    owners = Owners()
    owners.apply(tasks((10, 5, FORK, b"one"), (20, 5, EXIT, b"")))
    assert len(set(owners.resolve(segments((15, 5), (25, 5))).tolist())) == 1


def test_events_may_come_after_their_segments() -> None:
    owners = Owners()
    (owner,) = set(owners.resolve(segments((11, 5), (12, 5))).tolist())
    assert rows(owners)[owner]["comm"] == "?"
    owners.apply(tasks((10, 5, FORK, b"late")))
    row = rows(owners)[owner]
    assert (row["comm"], row["t0_ns"]) == ("late", 10)
    assert owners.resolve(segments((13, 5))).tolist() == [owner]


def test_a_fork_after_the_segments_is_another_thread() -> None:
    owners = Owners()
    before = owners.resolve(segments((11, 5))).tolist()
    owners.apply(tasks((20, 5, FORK, b"new")))
    assert owners.resolve(segments((21, 5))).tolist() != before


def test_a_lost_fork_is_seen_from_the_next_sign_of_life() -> None:
    owners = Owners()
    owners.apply(tasks((1, 5, ALIVE, b"one"), (20, 5, EXIT, b""), (30, 5, EXEC, b"two")))
    ids = owners.resolve(segments((10, 5), (31, 5)))
    assert ids[0] != ids[1]
    assert rows(owners)[int(ids[1])]["comm"] == "two"


def test_exec_and_rename_change_the_name_not_the_owner() -> None:
    owners = Owners()
    owners.apply(tasks((10, 5, FORK, b"sh")))
    (owner,) = owners.resolve(segments((11, 5))).tolist()
    rows(owners)
    owners.apply(tasks((12, 5, EXEC, b"mariadbd")))
    assert rows(owners)[owner]["comm"] == "mariadbd"
    assert owners.resolve(segments((13, 5))).tolist() == [owner]


def test_kind_and_server_make_owners_of_one_thread() -> None:
    owners = Owners()
    owners.apply(tasks((1, 5, ALIVE, b"ib_purge")))
    (query,) = owners.resolve(segments((2, 5), owner_kind=OwnerKind.QUERY, server=1)).tolist()
    (server,) = owners.resolve(segments((3, 5), owner_kind=OwnerKind.SERVER, server=1)).tolist()
    found = rows(owners)
    assert (found[query]["kind"], found[query]["role"]) == ("query", None)
    assert (found[server]["kind"], found[server]["role"]) == ("server", "ib_purge")
    assert found[server]["server"] == 1


def test_process_comm_is_of_the_main_thread() -> None:
    owners = Owners()
    main = {"t_ns": 1, "pid": 5, "tgid": 5, "event": ALIVE, "comm": b"mysqld"}
    worker = main | {"pid": 6, "comm": b"connection"}
    owners.apply(ft.records(Block.TASK, [main, worker]))
    (owner,) = owners.resolve(segments((2, 6), tgid=5)).tolist()
    row = rows(owners)[owner]
    assert (row["comm"], row["process_comm"], row["tgid"]) == ("connection", "mysqld", 5)


def test_the_dead_are_forgotten() -> None:
    owners = Owners()
    for pid in range(1, 2000):
        owners.apply(tasks((pid, pid, FORK, b"x"), (pid + 1, pid, EXIT, b"")))
    owners.forget(EXIT_TAIL_NS + 10_000)
    assert not owners._lives
    assert not owners._ended


def test_newest_owner_row_counts() -> None:
    owners = Owners()
    owners.resolve(segments((1, 9), (1, 8)))
    first = owners.take_changes()
    owners.apply(tasks((0, 9, ALIVE, b"named")))
    both = pa.concat_tables([first, owners.take_changes()])
    newest = newest_owners(both)
    assert newest.column("owner").to_pylist() == [0, 1, 2]
    assert newest.column("comm").to_pylist().count("named") == 1


def renames(*events: tuple[int, TaskEvent, bytes]) -> ft.Records:
    """Renames thread 6 of server 1's process 5."""
    rows = [
        {"t_ns": t, "pid": 6, "tgid": 5, "server": 1, "event": event, "comm": comm}
        for t, event, comm in events
    ]
    return ft.records(Block.TASK, rows)


def of_thread_6(*t0_ns: int) -> ft.Records:
    fields = {"tgid": 5, "owner_kind": OwnerKind.SERVER, "server": 1}
    return segments(*((t, 6) for t in t0_ns), **fields)


def test_a_thread_is_an_owner_for_each_of_its_names_whenever_it_bears_it() -> None:
    owners = Owners()
    owners.apply(tasks((0, 5, ALIVE, b"java")))
    owners.apply(
        renames(
            (0, ALIVE, b"ReadStage-3"),
            (20, RENAME, b"MutationStage-1"),
            (30, RENAME, b"ReadStage-9"),
            (40, RENAME, b"ReadStage-4"),  # a number has no meaning
        )
    )
    ids = owners.resolve(of_thread_6(10, 19, 20, 29, 30, 45)).tolist()
    read, write = ids[0], ids[2]
    assert ids == [read, read, write, write, read, read]
    assert read != write
    found = rows(owners)
    assert (found[read]["role"], found[write]["role"]) == ("ReadStage-?", "MutationStage-?")
    assert found[write]["comm"] == "MutationStage-1"
    owners.forget(50)
    assert owners.resolve(of_thread_6(51, 52)).tolist() == [read, read]
    owners.apply(renames((60, RENAME, b"MutationStage-2")))
    assert owners.resolve(of_thread_6(55, 61)).tolist() == [read, write]


def test_renames_that_come_late_take_their_place() -> None:
    owners = Owners()
    owners.apply(renames((0, ALIVE, b"a"), (30, RENAME, b"c")))
    owners.apply(renames((20, RENAME, b"b")))
    ids = owners.resolve(of_thread_6(10, 25, 35)).tolist()
    assert [rows_of["comm"] for _, rows_of in sorted(rows(owners).items())][1:] == ["a", "b", "c"]
    assert len(set(ids)) == 3


def test_the_first_name_of_a_young_thread_is_its_name_from_birth() -> None:
    owners = Owners()
    owners.apply(renames((10, FORK, b"java"), (20, RENAME, b"reader"), (30, RENAME, b"writer")))
    assert len(set(owners.resolve(of_thread_6(15, 25, 35)).tolist())) == 1
    assert rows(owners)[1]["comm"] == "writer"
    late = 10 + NAMING_NS
    owners.apply(renames((late, RENAME, b"flusher")))
    first, second = owners.resolve(of_thread_6(late - 1, late)).tolist()
    assert first != second


def test_a_thread_that_takes_ever_new_names_is_no_more_owners_than_are_told_apart() -> None:
    owners = Owners()
    owners.apply(renames((0, ALIVE, b"a")))
    found = set()
    for n in range(3 * NAMES_MAX):
        name = "".join(chr(97 + int(digit)) for digit in f"{n:04d}").encode()
        owners.apply(renames((10 * n + 10, RENAME, name)))
        found |= set(owners.resolve(of_thread_6(10 * n + 15)).tolist())
        owners.forget(10 * n + 15)
    assert len(found) <= NAMES_MAX
