# SPDX-License-Identifier: Apache-2.0
"""Shipping: every closed part arrives once and whole, whatever fails on the way."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from closed_hours import (
    ID,
    OTHER_ID,
    closed_contents,
    contents,
    make_store,
    write_hour,
    write_servers,
)
from qjoule.agent.rollup_layout import Part, part_at
from qjoule_fleet.ship.destination import Destination, Directory, Remote, RetryPolicy, destination
from qjoule_fleet.ship.shipper import Report, Shipper

QUICK = RetryPolicy(attempts=3, timeout_s=60.0, sleep=lambda _pause_s: None)


class Killed(BaseException):
    """Ends a shipper as SIGKILL does: nothing is tidied up."""


class Troubled(Directory):
    """A directory on which `before` is called with what is done, and the path."""

    def __init__(self, root: Path, before: Callable[[str, str], object]) -> None:
        super().__init__(root)
        self.before = before

    def put(self, path: str, content: bytes | Path) -> None:
        self.before("put", path)
        super().put(path, content)
        self.before("after", path)

    def read(self, path: str) -> bytes | None:
        self.before("read", path)
        return super().read(path)


def ship(store: Path, to: Path | Destination) -> Report:
    target = Directory(to) if isinstance(to, Path) else to
    return Shipper(store, target, retry_policy=QUICK, state=store.parent).ship()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "store")


@pytest.fixture
def to(tmp_path: Path) -> Path:
    return tmp_path / "to"


def name(path: Path, store: Path) -> str:
    return path.relative_to(store).as_posix()


def parts(root: Path) -> dict[str, bytes]:
    return {path: data for path, data in contents(root).items() if not path.startswith("manifests")}


def test_closed_parts_arrive_once_and_open_ones_later(store: Path, to: Path) -> None:
    closed = closed_contents(store)
    (day,) = (store / "rollups").glob("date=*/host=*")
    for path in (day / ".hour-11.parquet.tmp", day / "notes.parquet", store / "counters.json"):
        path.write_bytes(b"no part")
    first = ship(store, to)
    assert parts(to) == closed and len(first.shipped) == 7
    assert (first.open, first.there, first.succeeded) == (1, 0, True)
    lines = [line for manifest in (to / "manifests").rglob("*.jsonl") for line in manifest.open()]
    entries = {entry["path"]: (entry["sha256"], entry["size"]) for entry in map(json.loads, lines)}
    assert entries == {
        path: (hashlib.sha256(data).hexdigest(), len(data)) for path, data in closed.items()
    }
    before = contents(to)
    for path in (store / "rollups").rglob("*.parquet"):
        os.utime(path, (0, 0))  # the clock does not matter
    again = ship(store, to)
    assert (again.shipped, again.there, contents(to)) == ([], 7, before)
    write_hour(store, 3)
    write_servers(store, "11.8")
    assert ship(store, to).shipped[-1] == Part("servers", "db1", ID).path
    closed_now = closed_contents(store, 4)
    assert parts(to) == {path: data for path, data in closed_now.items() if part_at(path)}


def test_a_part_that_changed_after_it_was_closed_is_named_and_not_shipped(
    store: Path, to: Path
) -> None:
    """Either it was changed here, or another machine has this host's name and id."""
    ship(store, to)
    before = parts(to)
    path = store / write_hour(store, 0).path
    assert ship(store, to).succeeded, "written again, but the same"
    pq.write_table(pq.ParquetFile(path).read().slice(0, 1), path)
    (trouble,) = ship(store, to).refused
    assert trouble.path == name(path, store)
    assert "changed after its hour was closed" in trouble.why
    assert "another host has this host's name and id" in trouble.why
    assert parts(to) == before


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data[:200] + bytes([data[200] ^ 1]) + data[201:],
        lambda data: data[:-8] + b"\xff" * 8,
        lambda data: data.replace(b"qjoule.rollup\x18\x032.2", b"qjoule.rollup\x18\x039.1"),
        lambda data: data.replace(ID.encode(), OTHER_ID.encode()),
    ],
)
def test_damaged_parts_and_those_that_lie_are_named_and_not_shipped(
    store: Path, to: Path, damage: Callable[[bytes], bytes]
) -> None:
    path = next((store / "rollups").rglob("hour-11*.parquet"))
    path.write_bytes(damage(path.read_bytes()))
    report = ship(store, to)
    assert [trouble.path for trouble in report.refused] == [name(path, store)]
    assert len(report.shipped) == 6 and not report.succeeded


@pytest.mark.parametrize("content", [b"{}\n[]\n\xff\n", b'{"path": 1}\n' + b"[" * 99999 + b"\n"])
def test_a_damaged_manifest_means_that_parts_are_shipped_again(
    store: Path, to: Path, content: bytes
) -> None:
    ship(store, to)
    before = parts(to)
    for file in (to / "manifests").rglob("*.jsonl"):
        lines = file.read_bytes().splitlines(keepends=True)
        file.write_bytes(lines[0][:-9] + b"\n" + content + b"".join(lines[1:]))
    report = ship(store, to)
    assert report.damaged_lines and report.succeeded and len(report.shipped) == 2
    assert parts(to) == before
    assert ship(store, to).damaged_lines == 0


def full(operation: str, _path: str) -> None:
    if operation == "put":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def unreachable(operation: str, _path: str) -> None:
    raise ConnectionError(f"{operation}: no route to host")


def test_a_destination_that_takes_nothing_is_named_and_parts_wait(store: Path, to: Path) -> None:
    troubled = Troubled(to, full)
    report = ship(store, troubled)
    assert {trouble.why for trouble in report.failed} == {os.strerror(errno.ENOSPC)}
    assert len(report.failed) == 3
    assert len(report.waiting) == 7 and report.waiting_bytes > 0 and not report.succeeded
    troubled.before = unreachable
    report = ship(store, troubled)
    assert report.unknown == 8 and not report.waiting and not report.succeeded
    troubled.before = lambda _what, _path: None
    assert len(ship(store, troubled).shipped) == 7


def test_parts_that_the_store_removes_while_they_wait_are_counted(store: Path, to: Path) -> None:
    troubled = Troubled(to, full)
    assert not ship(store, troubled).lost
    troubled.before = unreachable
    oldest = next((store / "rollups").rglob("hour-11*.parquet"))
    oldest.unlink()
    assert not ship(store, troubled).lost, "it is not known whether it was shipped"
    troubled.before = lambda _what, _path: None
    assert ship(store, troubled).lost == [name(oldest, store)]
    assert ship(store, troubled).succeeded, "it is told once"


def test_a_destination_that_does_not_answer_ends_the_pass(store: Path, to: Path) -> None:
    answer = threading.Event()
    troubled = Troubled(to, lambda operation, _path: operation != "put" or answer.wait(60))
    slow = RetryPolicy(attempts=3, timeout_s=0.05, sleep=lambda _pause_s: None)
    report = Shipper(store, troubled, retry_policy=slow).ship()
    assert {trouble.why for trouble in report.failed} == {"no answer in 0.05 s"}
    answer.set()
    assert parts(to).keys() <= closed_contents(store).keys()


def test_a_shipper_may_end_at_any_step(tmp_path: Path) -> None:
    """Each step of a pass in turn; the next shipper goes on."""
    store = make_store(tmp_path / "store", hours=2)
    expected = closed_contents(store, 2)
    for step in range(1_000):
        to, left = tmp_path / f"to-{step}", [step]

        def kill(_what: str, _path: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise Killed

        try:
            ship(store, Troubled(to, kill))
        except Killed:
            assert parts(to).items() <= expected.items()
            assert ship(store, to).succeeded and parts(to) == expected
        else:
            assert parts(to) == expected and step > 15
            return
    pytest.fail("a pass does not end")


def test_an_object_store_gets_whole_objects_and_others_a_rename(store: Path, to: Path) -> None:
    files = MemoryFileSystem()
    for there in (0, 7):
        assert ship(store, destination("memory://fleet/joules", {})).there == there
        names = files.find("/fleet/joules")
        assert len(names) == 9 and not any("/." in name for name in names)
        report = ship(store, Remote(LocalFileSystem(), str(to), "x"))
        assert (len(report.shipped), report.there) == (7 - there, there)
        assert parts(to) == closed_contents(store)
    files.rm("/fleet", recursive=True)


def test_a_file_that_arrives_short_is_not_made_visible(store: Path, to: Path) -> None:
    class Short(LocalFileSystem):  # type: ignore[misc]
        def pipe_file(self, path: str, value: bytes, **_: object) -> None:
            super().pipe_file(path, value[:-1])

    report = ship(store, Remote(Short(), str(to), "x"))
    assert "bytes arrived" in report.failed[0].why
    assert not [path for path in to.rglob("*") if path.is_file()]
