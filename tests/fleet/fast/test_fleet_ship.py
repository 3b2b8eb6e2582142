# SPDX-License-Identifier: Apache-2.0
"""Shipping: every closed part arrives once and whole, whatever fails on the way."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from closed_hours import (
    ID,
    OTHER_ID,
    closed_contents,
    contents,
    make_store,
    write_hour,
    write_open_hour,
    write_servers,
)
from qjoule.fleet.layout import Part
from qjoule.fleet.ship import manifest
from qjoule.fleet.ship.destination import Directory, Remote, destination
from qjoule.fleet.ship.patience import GaveUp, Patience
from qjoule.fleet.ship.shipper import Report, Shipper

QUICK = Patience(attempts=3, timeout_s=60.0, sleep=lambda _pause_s: None)


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


def ship(store: Path, to: Path | Directory, most_bytes: int = 1 << 30) -> Report:
    target = Directory(to) if isinstance(to, Path) else to
    return Shipper(store, target, patience=QUICK, most_bytes=most_bytes).ship()


def parts(root: Path) -> dict[str, bytes]:
    return {path: data for path, data in contents(root).items() if not path.startswith("manifests")}


def test_closed_parts_arrive_once_and_open_ones_later(tmp_path: Path) -> None:
    store, to = make_store(tmp_path / "store"), tmp_path / "to"
    first = ship(store, to)
    assert parts(to) == closed_contents(store) and len(first.shipped) == 7
    assert (first.open, first.there, first.well) == (1, 0, True)
    before = contents(to)
    again = ship(store, to)
    assert (again.shipped, again.there, contents(to)) == ([], 7, before)
    write_hour(store, 3)
    assert len(ship(store, to).shipped) == 2


def test_the_manifest_has_each_part_with_its_checksum(tmp_path: Path) -> None:
    store, to = make_store(tmp_path / "store"), tmp_path / "to"
    ship(store, to)
    entries: dict[str, manifest.Entry] = {}
    for file in (to / "manifests").rglob("*.jsonl"):
        found, damaged = manifest.parse(file.read_bytes())
        assert not damaged
        entries |= found
    assert entries.keys() == parts(to).keys()
    for path, data in parts(to).items():
        assert entries[path].sha256 == hashlib.sha256(data).hexdigest()
        assert entries[path].size == len(data)


def test_tables_that_change_are_shipped_again(tmp_path: Path) -> None:
    store, to = make_store(tmp_path / "store"), tmp_path / "to"
    ship(store, to)
    write_servers(store, "11.8")
    assert ship(store, to).shipped == [Part("servers", "db1", ID).path]
    assert pq.read_table(to / Part("servers", "db1", ID).path)["version"].to_pylist() == ["11.8"]


def test_a_part_that_changed_after_it_was_closed_is_named_and_not_shipped(tmp_path: Path) -> None:
    store, to = make_store(tmp_path / "store"), tmp_path / "to"
    ship(store, to)
    before = parts(to)
    path = store / write_hour(store, 0, host_id=ID).path
    os.utime(path, (0, 0))
    assert ship(store, to).well, "another time alone is no other part"
    other = store / "other"
    path.write_bytes((other / write_hour(other, 0, host="db1").path).read_bytes())
    table = pq.ParquetFile(path).read().slice(0, 1)
    pq.write_table(table, path)
    report = ship(store, to)
    assert [one.path for one in report.refused] == [path.relative_to(store).as_posix()]
    assert "changed after its hour was closed" in report.refused[0].why
    assert parts(to) == before


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data[:0],
        lambda data: data[:200] + bytes([data[200] ^ 1]) + data[201:],
        lambda data: data[:-8] + b"\xff" * 8,
    ],
)
def test_damaged_parts_are_named_and_not_shipped(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    store, to = make_store(tmp_path / "store"), tmp_path / "to"
    path = next((store / "rollups").rglob("hour-11*.parquet"))
    path.write_bytes(damage(path.read_bytes()))
    report = ship(store, to)
    assert [one.path for one in report.refused] == [path.relative_to(store).as_posix()]
    assert len(report.shipped) == 6 and not report.well


def test_parts_that_lie_are_not_shipped(tmp_path: Path) -> None:
    store, to = make_store(tmp_path / "store"), tmp_path / "to"
    mine = store / write_hour(store, 0).path
    false = {
        "another host": store / Part("rollups", "db2", ID, 1_794_999_600).path,
        "another id": store / Part("rollups", "db1", OTHER_ID, 1_794_999_600).path,
        "another hour": store / Part("rollups", "db1", ID, 1_794_999_600 - 3600).path,
        "another table": store / Part("tags", "db1", ID, 1_794_999_600).path,
    }
    for path in false.values():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(mine.read_bytes())
    report = ship(store, to)
    lying = {path.relative_to(store).as_posix() for path in false.values()}
    assert {one.path for one in report.refused} == lying
    assert not lying & parts(to).keys()


def test_parts_of_a_newer_schema_are_not_shipped(tmp_path: Path) -> None:
    store, to = make_store(tmp_path / "store"), tmp_path / "to"
    path = store / write_hour(store, 0).path
    table = pq.ParquetFile(path).read()
    pq.write_table(
        table.replace_schema_metadata({**table.schema.metadata, b"qjoule.rollup": b"9"}), path
    )
    (trouble,) = ship(store, to).refused
    assert "version 9" in trouble.why


def test_two_hosts_of_one_name_do_not_meet(tmp_path: Path) -> None:
    to = tmp_path / "to"
    for host_id in (ID, OTHER_ID):
        store = tmp_path / host_id
        write_hour(store, 0, host_id=host_id)
        write_servers(store, "11.4", host_id=host_id)
        assert ship(store, to).well
    assert len(parts(to)) == 6 and ship(tmp_path / ID, to).there == 3


def test_two_machines_of_one_name_and_id_are_noticed(tmp_path: Path) -> None:
    to = tmp_path / "to"
    write_hour(tmp_path / "one", 0)
    part = write_hour(tmp_path / "two", 0)
    rows = pq.ParquetFile(tmp_path / "two" / part.path).read()
    pq.write_table(rows.slice(0, 1), tmp_path / "two" / part.path)
    assert ship(tmp_path / "one", to).well
    report = ship(tmp_path / "two", to)
    assert "another host has this host's name and id" in report.refused[0].why


@pytest.mark.parametrize(
    "content", [b"rubbish\n", b"{}\n[]\n\xff\n", b'{"path": 1}\n' + b"[" * 99999 + b"\n"]
)
def test_a_damaged_manifest_means_that_parts_are_shipped_again(
    tmp_path: Path, content: bytes
) -> None:
    store, to = make_store(tmp_path / "store"), tmp_path / "to"
    ship(store, to)
    before = contents(to)
    for file in (to / "manifests").rglob("*.jsonl"):
        lines = file.read_bytes().splitlines(keepends=True)
        file.write_bytes(lines[0][:-9] + b"\n" + content + b"".join(lines[1:]))
    report = ship(store, to)
    assert report.damaged_lines and report.well and len(report.shipped) == 2
    assert parts(to) == {path: before[path] for path in parts(to)}
    assert ship(store, to).damaged_lines == 0


def test_a_manifest_says_nothing_of_other_hosts_parts(tmp_path: Path) -> None:
    store, to = make_store(tmp_path / "store"), tmp_path / "to"
    theirs = manifest.Entry("../../etc/passwd", 1, "0" * 64, 0, "")
    other = manifest.Entry(Part("servers", "db2", ID).path, 1, "0" * 64, 0, "")
    file = to / "manifests" / "host=db1" / f"{ID}.jsonl"
    file.parent.mkdir(parents=True)
    file.write_bytes(manifest.text([theirs, other]))
    assert ship(store, to).well
    assert manifest.parse(file.read_bytes())[0].keys() == {Part("servers", "db1", ID).path}


def test_a_destination_that_refuses_for_a_while_gets_everything(tmp_path: Path) -> None:
    store, chance = make_store(tmp_path / "store"), random.Random(1)

    def sometimes(_what: str, _path: str) -> None:
        if chance.random() < 0.4:
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    report = ship(store, Troubled(tmp_path / "to", sometimes))
    for _ in range(20):
        report = ship(store, Troubled(tmp_path / "to", sometimes))
    assert report.well and report.there == 7
    assert parts(tmp_path / "to") == closed_contents(store)


def refuses(what: str, _path: str) -> None:
    if what == "put":
        raise PermissionError(errno.EACCES, "Permission denied")


def is_full(what: str, _path: str) -> None:
    if what == "put":
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("before", "words"), [(refuses, "Permission denied"), (is_full, "No space left on device")]
)
def test_a_destination_that_takes_nothing_is_named_and_parts_wait(
    tmp_path: Path, before: Callable[[str, str], object], words: str
) -> None:
    store = make_store(tmp_path / "store")
    to = Troubled(tmp_path / "to", before)
    report = ship(store, to)
    assert {one.why for one in report.failed} == {words} and len(report.failed) == 3
    assert len(report.waiting) == 7 and report.waiting_bytes > 0 and not report.well
    to.before = lambda _what, _path: None
    assert len(ship(store, to).shipped) == 7


def test_an_unreachable_destination_leaves_all_unknown(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")

    def gone(what: str, _path: str) -> None:
        raise ConnectionError(f"{what}: no route to host")

    report = ship(store, Troubled(tmp_path / "to", gone))
    assert report.unknown == 8 and not report.waiting and not report.well


def test_parts_that_the_store_removes_while_they_wait_are_counted(tmp_path: Path) -> None:
    store, to = make_store(tmp_path / "store"), Troubled(tmp_path / "to", refuses)

    def gone(what: str, _path: str) -> None:
        raise ConnectionError(what)

    assert not ship(store, to).lost
    to.before = gone
    oldest = next((store / "rollups").rglob("hour-11*.parquet"))
    oldest.unlink()
    assert not ship(store, to).lost, "it is not known whether it was shipped"
    to.before = lambda _what, _path: None
    assert ship(store, to).lost == [oldest.relative_to(store).as_posix()]
    assert ship(store, to).well, "it is told once"


def test_too_much_that_waits_leaves_the_oldest_out(tmp_path: Path) -> None:
    store, to = make_store(tmp_path / "store"), tmp_path / "to"
    size = sum(map(len, closed_contents(store).values()))
    report = ship(store, to, most_bytes=size // 2)
    assert 0 < report.left_out < 7 and len(report.shipped) == 7 - report.left_out
    assert all("hour-11" in path for path in report.waiting[:2])
    for _ in range(3):
        report = ship(store, to, most_bytes=size // 2)
    assert report.well
    assert parts(to) == closed_contents(store)


def test_a_destination_that_does_not_answer_ends_the_pass(tmp_path: Path) -> None:
    store, answer = make_store(tmp_path / "store"), threading.Event()
    to = Troubled(tmp_path / "to", lambda what, _path: what != "put" or answer.wait(60))
    slow = Patience(attempts=3, timeout_s=0.05, sleep=lambda _pause_s: None)
    report = Shipper(store, to, patience=slow).ship()
    assert {one.why for one in report.failed} == {"no answer in 0.05 s"}
    answer.set()
    assert parts(tmp_path / "to").keys() <= closed_contents(store).keys()


def test_the_clock_does_not_matter(tmp_path: Path) -> None:
    store, to = make_store(tmp_path / "store"), tmp_path / "to"
    for time_s in (2_000_000_000, 0, 1_000):
        for path in store.rglob("*.parquet"):
            os.utime(path, (time_s, time_s))
        assert ship(store, to).well
    assert parts(to) == closed_contents(store)


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
            assert ship(store, to).well and parts(to) == expected
        else:
            assert parts(to) == expected and step > 15
            return
    pytest.fail("a pass does not end")


def test_files_that_are_no_parts_stay(tmp_path: Path) -> None:
    store, to = make_store(tmp_path / "store"), tmp_path / "to"
    expected = closed_contents(store)
    day = next((store / "rollups").glob("date=*/host=*"))
    (day / ".hour-11.parquet.tmp").write_bytes(b"half")
    (day / "notes.parquet").write_bytes(b"mine")
    (store / "counters.json").write_text("{}")
    (day / f"hour-20-{ID}.parquet").mkdir()
    assert ship(store, to).well and parts(to) == expected


def test_waiting_parts_are_remembered_whatever_the_file_holds(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    ship(store, Troubled(tmp_path / "to", refuses))
    (file,) = store.glob(".ship-*.json")
    for content in (b"", b"{}", b"[1]", b"[" * 10_000, b'["../x"]'):
        file.write_bytes(content)
        assert not Shipper(store, Directory(tmp_path / "to2"), patience=QUICK).ship().lost


def test_a_store_of_one_that_is_open_ships_nothing(tmp_path: Path) -> None:
    write_open_hour(tmp_path / "store", 0)
    report = ship(tmp_path / "store", tmp_path / "to")
    assert report.open == 1 and not report.shipped and not (tmp_path / "to").exists()


def test_attempts_pause_longer_each_time_and_end() -> None:
    pauses: list[float] = []
    patience = Patience(attempts=6, first_pause_s=1, longest_pause_s=8, sleep=pauses.append)

    def fails() -> None:
        raise RuntimeError("http://x\n503")

    with pytest.raises(GaveUp, match="http://x 503"):
        patience.call(fails)
    for pause_s, expected_s in zip(pauses, (1, 2, 4, 8, 8), strict=True):
        assert 0.5 * expected_s <= pause_s <= 1.5 * expected_s


def test_an_object_store_gets_whole_objects_and_others_a_rename(tmp_path: Path) -> None:
    from fsspec.implementations.local import LocalFileSystem  # noqa: PLC0415
    from fsspec.implementations.memory import MemoryFileSystem  # noqa: PLC0415

    store = make_store(tmp_path / "store")
    memory = destination("memory://fleet/joules", {})
    assert Shipper(store, memory, patience=QUICK).ship().well
    files = MemoryFileSystem()
    names = files.find("/fleet/joules")
    assert len(names) == 9 and not any("/." in name for name in names)
    assert (
        Shipper(store, destination("memory://fleet/joules", {}), patience=QUICK).ship().there == 7
    )
    files.rm("/fleet", recursive=True)
    for attempt in range(2):
        remote = Remote(LocalFileSystem(), str(tmp_path / "to"), "x")
        report = Shipper(store, remote, patience=QUICK).ship()
        assert len(report.shipped) == (0 if attempt else 7)
    assert parts(tmp_path / "to") == closed_contents(store)


def test_a_file_that_arrives_short_is_not_made_visible(tmp_path: Path) -> None:
    from fsspec.implementations.local import LocalFileSystem  # noqa: PLC0415

    class Short(LocalFileSystem):  # type: ignore[misc]
        def pipe_file(self, path: str, value: bytes, **_: object) -> None:
            super().pipe_file(path, value[:-1])

    store = make_store(tmp_path / "store")
    report = Shipper(store, Remote(Short(), str(tmp_path / "to"), "x"), patience=QUICK).ship()
    assert "bytes arrived" in report.failed[0].why and not parts(tmp_path / "to")


def test_manifest_lines_are_json(tmp_path: Path) -> None:
    store, to = make_store(tmp_path / "store"), tmp_path / "to"
    ship(store, to)
    for file in (to / "manifests").rglob("*.jsonl"):
        assert all(json.loads(line)["path"] for line in file.read_text().splitlines())
