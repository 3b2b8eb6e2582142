# SPDX-License-Identifier: Apache-2.0
"""The rollups on disk: complete at any moment, bounded, and robust against whatever is there."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from metrics_pages import snapshots
from qjoule.agent.handover import Handover, leave
from qjoule.agent.hourly_tables import ERRORS
from qjoule.agent.journal import Journal, Retention, read_entry, waiting
from qjoule.agent.minute import Minute
from qjoule.agent.rollup_layout import TABLES
from qjoule.agent.rollups import Rollups
from qjoule.agent.store import Store
from qjoule.agent.store_directory import let_group_read
from qjoule.agent.store_rows import minute_table
from qjoule.agent.store_writer import write_waiting
from qjoule.commands.agent_writer import WriterProcess
from qjoule.errors import QjouleError
from qjoule.lazy_import import pc
from qjoule.metrics.counters import Counters, Limits
from qjoule.metrics.interval import Amounts, Interval, Query, Shape, Tagged, interval_of
from qjoule.trace.meta import Server

START_S = 1_795_000_000 // 3600 * 3600
HOUR_S, DAY_S = 3600, 86_400
KEPT = Retention(30, 100)


@cache
def intervals() -> Sequence[Interval]:
    counters = Counters(Limits(), 1e9)
    return [
        counters.take(interval_of(snapshot.interval), snapshot.elapsed_s, 1e9)
        for snapshot in snapshots(20, shapes=2)
    ]


def minute(start_s: int = START_S) -> Minute:
    minute_ = Minute(start_s)
    for interval in intervals():
        minute_.add(interval)
    return minute_


def minute_sum(column: str) -> int:
    return int(pc.sum(minute_table(minute(), "package", "0" * 16)[column]).as_py())


def write(path: Path, *after_s: int, retention: Retention = KEPT) -> Store:
    """A store that has written minutes so long after `START_S`."""
    store = Store(path, "db1", retention)
    for seconds in after_s:
        assert store.write(minute(START_S + seconds), "package")
    return store


def table(path: Path, name: str = "rollups") -> pa.Table:
    return ds.dataset(path / name, partitioning="hive").to_table()


def minutes(rows: pa.Table) -> int:
    return len(set(rows["minute"].to_pylist()))


def is_closed(path: Path) -> bool:
    return bool(pq.read_schema(path).metadata.get(b"qjoule.closed") == b"1")


def test_damaged_and_foreign_files_are_put_aside_and_counted(tmp_path: Path) -> None:
    write(tmp_path, 0)
    (file,) = tmp_path.rglob("hour-*.parquet")
    intact = file.read_bytes()
    pq.write_table(pa.table({"a": [1]}), file)
    for content in (
        file.read_bytes(),
        b"",
        intact[: len(intact) // 2],
        intact[:-20] + b"\xff" * 20,
    ):
        file.write_bytes(content)
        store = write(tmp_path, 60)
        assert store.damaged == 1
    assert minutes(pq.read_table(file)) == 1
    assert file.with_name(file.name + ".damaged").exists()


def test_old_and_too_many_files_go_oldest_first(tmp_path: Path) -> None:
    foreign = tmp_path / "rollups" / "date=2020-01-01" / "host=db1" / "mine.txt"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("not ours to remove")
    store = write(tmp_path, *(DAY_S * day for day in range(5)), retention=Retention(2, 100))

    def days(name: str = "*") -> list[str]:
        return sorted(path.parent.parent.name for path in tmp_path.glob(f"{name}/*/*/hour-*"))

    days_left = days("rollups")
    assert len(days_left) == 3 and foreign.exists()
    assert days("hours") == days_left[:-1], "each day but the last is over"
    assert 0 < store.bytes < 1_000_000
    store.retention = Retention(2, 0)
    store.write(minute(START_S + 4 * DAY_S + 60), "package")
    assert days() == days_left[-1:]


def test_an_hour_that_is_over_is_summed_and_closed(tmp_path: Path) -> None:
    store = write(tmp_path, 0, 60, 3540, HOUR_S, HOUR_S + 240)
    assert not list(tmp_path.rglob("hours/**/*.parquet")), "the clock may be set back a little"
    assert store.write(minute(START_S + HOUR_S + 300), "package")
    sums = table(tmp_path, "hours")
    assert {start.timestamp() for start in sums["minute"].to_pylist()} == {START_S}
    for name in ("calls", "cpu_ns", "energy_nj", "latency_ns"):
        assert pc.sum(sums[name]).as_py() == 3 * minute_sum(name)
    assert {is_closed(file) for file in tmp_path.rglob("hour-11*.parquet")} == {True}
    assert [is_closed(file) for file in tmp_path.rglob("hour-12*.parquet")] == [False]


def test_a_closed_hour_has_rows_by_minute_of_few_statements(tmp_path: Path) -> None:
    write(tmp_path, 0, 60, 120, HOUR_S + 300, retention=Retention(30, 100, 1))
    rows = table(tmp_path)
    past = rows.filter(pc.less(rows["minute"].cast("int64"), 1000 * (START_S + 1800)))
    queries = past.filter(pc.equal(past["kind"], "queries"))
    assert len(queries) == 5 and not any(queries[name].null_count for name in ERRORS)
    assert all(sum(row["latency"]) == row["calls"] for row in queries.to_pylist())
    assert pc.sum(queries["calls"]).as_py() == 3 * minute_sum("calls")
    assert pc.sum(past["energy_nj"]).as_py() == 3 * minute_sum("energy_nj")


def test_a_minute_of_a_closed_hour_counts_in_the_next_one(tmp_path: Path) -> None:
    store = write(tmp_path, 0, HOUR_S, HOUR_S + 300)
    (part,) = tmp_path.rglob("rollups/**/hour-11-*.parquet")
    before = part.read_bytes()
    assert store.write(minute(START_S + 120), "package")
    assert part.read_bytes() == before and store.moved == 1
    assert pc.sum(table(tmp_path)["calls"]).as_py() == 4 * minute_sum("calls")


def test_a_second_agent_and_a_foreign_path_are_refused_in_one_line(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "db1", KEPT)
    with pytest.raises(QjouleError, match=r"another agent writes to it\Z"):
        Journal(tmp_path, "db1", KEPT)
    journal.close()
    Journal(tmp_path, "db1", KEPT).close()
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(QjouleError, match=r"store\.path: .*: make it a directory of the agent"):
        Journal(file, "db1", KEPT)


@pytest.mark.parametrize("shared", [0, 0o050])
def test_a_host_names_no_path_and_our_group_reads_rollups(tmp_path: Path, shared: int) -> None:
    store, before = tmp_path / "store", os.umask(0o077)
    store.mkdir()
    store.chmod(0o700 | shared)
    try:
        let_group_read(store)
        assert Store(store, "../../x y", KEPT).write(minute(), "package")
        leave(store, Handover(Counters(Limits(), 0.0)))
    finally:
        os.umask(before)
    (file,) = tmp_path.rglob("hour-*")
    assert file.parent.name == "host=.._.._x_y"
    for path in store.rglob("*"):
        others = shared if path.relative_to(store).parts[0] in TABLES else 0
        assert path.stat().st_mode & 0o077 == others & (0o077 if path.is_dir() else 0o066), path


def full(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


def rollups_in(path: Path, say: Callable[[str], object] = str) -> Rollups:
    """Written by this process instead of one of its own."""
    rollups = Rollups(Journal(path, "../../x y", KEPT), partial(write_waiting, path), say)
    rollups.start()
    return rollups


@pytest.mark.parametrize(("place", "lost"), [("journal", 4), ("part_files", 1)])
def test_a_disk_that_takes_nothing_is_told_once_and_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, lost: int
) -> None:
    messages: list[str] = []
    rollups = rollups_in(tmp_path, messages.append)
    monkeypatch.setattr(f"qjoule.agent.{place}.write_whole", full)
    for number in range(4):
        rollups.take(intervals()[0], START_S + 60.0 * number)
    rollups._pass_on()
    while rollups._waiting.qsize() or not messages:
        time.sleep(0.01)
    time.sleep(0.1)
    monkeypatch.undo()
    rollups.take(intervals()[0], START_S + 600.0)
    rollups.close()
    values = {family.name: family.samples[0].value for family in rollups.families()}
    assert values["qjoule_store_failed_writes"] == str(lost)
    assert values["qjoule_store_minutes"] == str(5 - lost)
    assert sum("No space left" in message for message in messages) == 1
    assert messages[-1] == "store: writes again"
    (file,) = tmp_path.rglob("hour-*.parquet")
    assert file.parent.name == "host=.._.._x_y", "a host cannot name a path"


def test_a_process_that_ends_writes_minutes_five_at_a_time_and_damaged_ones_never(
    tmp_path: Path,
) -> None:
    journal, writer = Journal(tmp_path, "db1", KEPT), WriterProcess(tmp_path)
    rows: list[int] = []

    def write() -> None:
        writer.run()
        (part,) = tmp_path.rglob("rollups/**/*.parquet")
        rows.append(minutes(pq.read_table(part)))

    rollups = Rollups(journal, write, str)
    rollups.start()
    (tmp_path / "waiting" / "00000000-old").write_bytes(b"\x93\x01")
    for number in range(7):
        rollups.take(intervals()[0], START_S + 60.0 * number)
        while rollups._waiting.qsize():  # no more than five may wait for the thread
            time.sleep(0.01)
    rollups.close()
    writer.close()
    assert rows == [1, 6, 7]
    (damaged,) = (tmp_path / "waiting").iterdir()
    assert damaged.name == ".00000000-old.damaged"
    values = {family.name: family.samples[0].value for family in rollups.families()}
    assert (values["qjoule_store_minutes"], values["qjoule_store_damaged_files"]) == ("7", "1")
    with pytest.raises(OSError):
        writer.run()


def test_a_minute_that_a_killed_writer_had_added_counts_once(tmp_path: Path) -> None:
    tagged = tagged_minute(START_S, {"a": 5})
    for interval in intervals():
        tagged.add(interval)
    tagged.add_samples(
        [{"time": START_S * 10**6, "server": "db:1", "fingerprint": "f", "calls": 1}]
    )
    journal = Journal(tmp_path, "db1", KEPT)
    journal.add(tagged, "package", [])
    (entry,) = (tmp_path / "waiting").iterdir()
    content = entry.read_bytes()
    for _ in range(2):
        entry.write_bytes(content)
        write_waiting(tmp_path)
        (tmp_path / ".written").unlink()
    journal.add(tagged, "package", [])
    write_waiting(tmp_path)
    journal.close()
    assert pc.sum(table(tmp_path)["calls"]).as_py() == 2 * minute_sum("calls")
    assert tag_energies(tmp_path) == {"a": 10}
    assert len(table(tmp_path, "samples")) == 2


def test_a_minute_with_damaged_samples_is_no_entry(tmp_path: Path) -> None:
    journal, minute_ = Journal(tmp_path, "db1", KEPT), minute(START_S)
    minute_.samples = [msgspec.Raw(msgspec.msgpack.encode(["no row"]))]
    journal.add(minute_, "package", [])
    journal.close()
    (entry,) = waiting(tmp_path)
    with pytest.raises(ValueError, match="object"):
        read_entry(entry)


def test_shapes_and_servers_are_kept_with_their_time(tmp_path: Path) -> None:
    for release, now_s in (("11.4", START_S), ("11.8", START_S + HOUR_S)):
        rollups = rollups_in(tmp_path)
        rollups.take(intervals()[0], float(now_s))
        servers = [Server(1, "db:1", "kind", release, "/usr/sbin/x", "symbol")]
        rollups.describe(Counters(Limits(), 0.0), servers, float(now_s))
        rollups.close()
        part = next(tmp_path.rglob("servers-*.parquet"))
        table = pq.ParquetFile(part).read()
        first, *later = table.to_pylist()
        pq.write_table(table.rename_columns({"attach_mode": "rung"}), part)  # as an earlier agent
    (second,) = later
    assert first["attach_mode"] == second["attach_mode"] == "symbol"
    assert [first["version"], second["version"]] == ["11.4", "11.8"]
    assert first["valid_to"] == second["valid_from"] and second["valid_to"] is None


def tagged_minute(start_s: int, energies: dict[str, int]) -> Minute:
    """`energies`: nJ by the value of the tag `tenant`."""
    minute_ = Minute(start_s, 60.0, "measured", "separate")
    minute_.node_nj["package"] = 10**9
    shape = Shape("db:1", "", "f1")
    minute_.add_tagged(
        {Tagged("tenant", name, shape): Query(Amounts(nj, nj, 1)) for name, nj in energies.items()}
    )
    return minute_


def tag_energies(path: Path) -> dict[str, int]:
    (part,) = path.glob("tags/**/hour-11-*.parquet")
    return {row["value"]: row["energy_nj"] for row in pq.ParquetFile(part).read().to_pylist()}


def test_sums_by_tag_are_bounded_and_those_of_the_minutes_also_after_a_restart(
    tmp_path: Path,
) -> None:
    retention = Retention(30, 100, tag_values=2)
    for first in (0, 2):
        store = Store(tmp_path, "db1", retention)
        for number in (first, first + 1):
            energies = {"a": 50, "b": 40 + number, f"new{number}": 1, "new": 2}
            assert store.write(tagged_minute(START_S + 60 * number, energies), "package")
    (part,) = tmp_path.glob("tags/**/*.parquet")
    energies = {"a": 200, "b": 166, "other": 12}
    assert tag_energies(tmp_path) == energies and not is_closed(part)
    store = Store(tmp_path, "db1", retention)
    assert store.write(tagged_minute(START_S + 2 * HOUR_S, {}), "package")
    assert list(tmp_path.glob("tags/**/*.parquet")) == [part], "without tags there is no part"
    assert tag_energies(tmp_path) == energies and is_closed(part)
