# SPDX-License-Identifier: Apache-2.0
"""The rollups on disk: complete at any moment, bounded, and robust against whatever is there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from metrics_pages import query, source, window
from qjoule.agent.rollup import Minute
from qjoule.agent.rollups import Rollups
from qjoule.agent.slow_tables import SlowTable
from qjoule.agent.store import Kept, Store
from qjoule.errors import QjouleError
from qjoule.fleet.schema import ERRORS
from qjoule.fleet.sums import rounded_up
from qjoule.metrics.counters import Counters, Limits
from qjoule.metrics.interval import Interval, interval_of
from qjoule.snapshots import Controls
from qjoule.trace.arrow import pc
from qjoule.trace.meta import Server

START_S = 1_795_000_000 // 3600 * 3600
KEPT = Kept(30, 100)


@cache
def folded(windows: int = 20) -> Sequence[Interval]:
    rows = [query(shape, 1000, calls=shape) for shape in (1, 2)]
    pieces = [window(n, rows, (n + 1) * 1000, n + 1) for n in range(windows)]
    counters = Counters(Limits(), 1e9)
    found = source(pieces, (1, 2)).snapshots(Controls(0.5, totals=False))
    return [counters.take(interval_of(s.interval), s.elapsed_s, 1e9) for s in found]


def minute(start_s: int = START_S) -> Minute:
    found = Minute(start_s)
    for one in folded():
        found.add(one)
    return found


def rows(path: Path) -> pa.Table:
    return ds.dataset(path / "rollups", partitioning="hive").to_table()


def test_a_minute_has_what_was_counted(tmp_path: Path) -> None:
    store = Store(tmp_path, "db1", KEPT)
    assert store.write(minute(), "package")
    found = rows(tmp_path)
    of = {kind: found.filter(pc.equal(found["kind"], kind)) for kind in ("node", "queries")}
    main = pc.and_(pc.not_equal(found["kind"], "node"), pc.is_valid(found["energy_nj"]))
    node = {row["name"]: row["energy_nj"] for row in of["node"].to_pylist()}
    assert node["package"] == round(20 * 1000 * 2.0**-14 * 1e9)
    assert sum(found.filter(main)["energy_nj"].to_pylist()) == node["package"]
    assert sum(of["queries"]["calls"].to_pylist()) == 20 * 3
    for row in of["queries"].to_pylist():
        assert sum(row["latency"]) == row["calls"] and row["latency"][-1] > 0
        assert all(row[name] is not None for name in ERRORS)
    assert set(found["date"].to_pylist()) and set(found["host"].to_pylist()) == {"db1"}
    assert pq.read_schema(next(tmp_path.rglob("hour*"))).metadata[b"qjoule.rollup"] == b"2"


def test_minutes_of_an_hour_are_one_file_also_after_a_restart(tmp_path: Path) -> None:
    for first in (0, 2):
        store = Store(tmp_path, "db1", KEPT)
        for number in (first, first + 1):
            assert store.write(minute(START_S + 60 * number), "package")
        store.close()
    assert len(list(tmp_path.rglob("hour-*"))) == 1
    assert len(set(rows(tmp_path)["minute"].to_pylist())) == 4


def test_a_clock_that_jumps_back_appends_to_the_earlier_hour(tmp_path: Path) -> None:
    store = Store(tmp_path, "db1", KEPT)
    for start_s in (START_S, START_S + 3600, START_S, START_S - 7200):
        assert store.write(minute(start_s), "package")
    found = rows(tmp_path)
    node = found.filter(pc.equal(found["kind"], "node"))
    assert len(node) == 4 * 2, "two domains; the repeated minute is there twice"
    assert len(list(tmp_path.rglob("hour-*"))) == 3


@pytest.mark.parametrize("content", [b"", b"PAR1rubbishPAR1", b"\0" * 5000])
def test_a_damaged_file_is_put_aside_and_counted(tmp_path: Path, content: bytes) -> None:
    store = Store(tmp_path, "db1", KEPT)
    assert store.write(minute(), "package")
    store.close()
    file = next(tmp_path.rglob("hour-*.parquet"))
    whole = file.read_bytes()
    for damage in (content, whole[: len(whole) // 2], whole[:-20] + b"\xff" * 20):
        file.write_bytes(damage)
        store = Store(tmp_path, "db1", KEPT)
        assert store.write(minute(START_S + 60), "package")
        assert store.damaged == 1
        store.close()
    assert len(set(pq.read_table(file)["minute"].to_pylist())) == 1
    assert file.with_name(file.name + ".damaged").exists()


def test_a_file_of_another_schema_is_put_aside(tmp_path: Path) -> None:
    store = Store(tmp_path, "db1", KEPT)
    assert store.write(minute(), "package")
    file = next(tmp_path.rglob("hour-*.parquet"))
    store.close()
    pq.write_table(pa.table({"a": [1]}), file)
    store = Store(tmp_path, "db1", KEPT)
    assert store.write(minute(), "package") and store.damaged == 1


def as_schema_1(path: Path) -> None:
    """Makes the store in `path` what an agent of schema 1 left."""
    for file in path.rglob("*-*.parquet"):
        table = pq.ParquetFile(file).read().drop_columns(["host_id"])
        if "policy" in table.schema.names:
            table = table.drop_columns(["policy"])
            narrow = table["latency"].cast(pa.list_(pa.uint32()))
            table = table.set_column(table.schema.get_field_index("latency"), "latency", narrow)
            table = table.replace_schema_metadata({"qjoule.rollup": "1"})
        pq.write_table(table, file.with_name(file.name[: file.name.rindex("-")] + ".parquet"))
        file.unlink()


def old_store(tmp_path: Path) -> None:
    store = Store(tmp_path, "db1", KEPT)
    store.tables["servers"].tell(("db:1", "kind", "1", "/x", "symbol"), START_S)
    for number in range(3):
        assert store.write(minute(START_S + 60 * number), "package")
    store.close()
    as_schema_1(tmp_path)


def test_what_an_agent_of_schema_1_wrote_is_taken_over(tmp_path: Path) -> None:
    old_store(tmp_path)
    before = rows(tmp_path)
    store = Store(tmp_path, "db1", KEPT)
    assert store.write(minute(START_S + 180), "package")
    found = rows(tmp_path)
    assert len(list(tmp_path.rglob("hour-*.parquet"))) == 1
    assert len(list(tmp_path.rglob("servers*.parquet"))) == 1 and store.damaged == 0
    assert len(set(found["minute"].to_pylist())) == 4
    assert set(found["policy"].to_pylist()) == {None, "separate"}
    assert len(set(found["host_id"].to_pylist())) == 1
    upgraded = found.filter(pc.is_null(found["policy"]))
    assert pc.sum(upgraded["energy_nj"]) == pc.sum(before["energy_nj"])


def test_a_kill_while_taking_over_neither_loses_nor_repeats_a_minute(tmp_path: Path) -> None:
    old_store(tmp_path)
    (old,) = tmp_path.rglob("hour-??.parquet")
    content = old.read_bytes()
    for number in (3, 4):
        store = Store(tmp_path, "db1", KEPT)
        assert store.write(minute(START_S + 60 * number), "package")
        store.close()
        old.write_bytes(content)  # as if it had been killed before the file was removed
    store = Store(tmp_path, "db1", KEPT)
    assert store.write(minute(START_S + 300), "package")
    found = rows(tmp_path)
    node = found.filter(pc.equal(found["kind"], "node"))
    assert len(node) == 6 * 2 and not old.exists()


def test_old_and_too_many_files_go_oldest_first(tmp_path: Path) -> None:
    store = Store(tmp_path, "db1", Kept(2, 100))
    foreign = tmp_path / "rollups" / "date=2020-01-01" / "host=db1" / "mine.txt"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("not ours to remove")
    days = [START_S + 86_400 * day for day in range(5)]
    for start_s in days:
        store.write(minute(start_s), "package")
    left = sorted(one.parent.parent.name for one in (tmp_path / "rollups").rglob("hour-*"))
    assert len(left) == 3 and foreign.exists()
    sums = sorted(one.parent.parent.name for one in (tmp_path / "hours").rglob("hour-*"))
    assert sums == left[:-1], "each day but the last is over"
    assert 0 < store.bytes < 1_000_000
    store.kept = Kept(2, 0)
    store.write(minute(days[-1] + 60), "package")
    assert [one.parent.parent.name for one in tmp_path.rglob("hour-*")] == left[-1:]


def hours(path: Path) -> pa.Table:
    return ds.dataset(path / "hours", partitioning="hive").to_table()


def is_closed(path: Path) -> bool:
    return bool(pq.read_schema(path).metadata.get(b"qjoule.closed") == b"1")


def test_an_hour_that_is_over_is_summed_and_closed(tmp_path: Path) -> None:
    store = Store(tmp_path, "db1", KEPT)
    for start_s in (0, 60, 3540, 3600, 3600 + 240):
        assert store.write(minute(START_S + start_s), "package")
    assert not list(tmp_path.rglob("hours/**/*.parquet")), "the clock may be set back a little"
    assert store.write(minute(START_S + 3600 + 300), "package")
    found, of_minutes = hours(tmp_path), rows(tmp_path)
    of_hour = of_minutes.filter(pc.less(of_minutes["minute"], found["minute"][0]).cast("bool"))
    assert not len(of_hour) and len(set(found["minute"].to_pylist())) == 1
    for name in ("calls", "cpu_ns", "energy_nj", "latency_ns"):
        assert pc.sum(found[name]).as_py() == 3 * pc.sum(minute_rows()[name]).as_py()
    closed = {is_closed(file) for file in tmp_path.rglob("hour-11*.parquet")}
    assert closed == {True}
    assert [is_closed(file) for file in tmp_path.rglob("hour-12*.parquet")] == [False]


def minute_rows() -> pa.Table:
    return minute().table("package", "0" * 16)


def test_a_closed_hour_has_rows_by_minute_of_few_statements(tmp_path: Path) -> None:
    for most, expected in ((2, 7), (1, 5), (0, 3)):
        store = Store(tmp_path / str(most), "db1", Kept(30, 100, most))
        for start_s in (0, 60, 120, 3600 + 300):
            assert store.write(minute(START_S + start_s), "package")
        found = rows(tmp_path / str(most))
        past = found.filter(pc.less(found["minute"].cast("int64"), 1000 * (START_S + 1800)))
        queries = past.filter(pc.equal(past["kind"], "queries"))
        assert len(queries) == expected
        assert pc.sum(queries["calls"]).as_py() == 3 * pc.sum(minute_rows()["calls"]).as_py()
        assert pc.sum(past["energy_nj"]).as_py() == 3 * pc.sum(minute_rows()["energy_nj"]).as_py()


def test_hours_that_a_crash_left_are_closed_later(tmp_path: Path) -> None:
    for hour in range(3):
        store = Store(tmp_path, "db1", KEPT)
        assert store.write(minute(START_S + 3600 * hour), "package")
        store.close()
    for part in tmp_path.rglob("hours/**/*.parquet"):
        part.unlink()  # as if it had been killed between an hour's two files
    for part in tmp_path.rglob("rollups/**/hour-11*.parquet"):
        pq.write_table(
            pq.ParquetFile(part).read().replace_schema_metadata({"qjoule.rollup": "2"}), part
        )
    store = Store(tmp_path, "db1", KEPT)
    assert store.write(minute(START_S + 5 * 3600), "package")
    assert len(set(hours(tmp_path)["minute"].to_pylist())) == 3


def test_all_hours_of_a_long_time_off_are_closed_a_few_at_a_time(tmp_path: Path) -> None:
    for hour in range(10):
        store = Store(tmp_path, "db1", KEPT)
        store._closed = set(range(0))
        store._open = set()
        assert store.write(minute(START_S + 3600 * hour), "package")
        store.close()
    store = Store(tmp_path, "db1", KEPT)
    for number in range(3):
        assert store.write(minute(START_S + 86_400 + 60 * number), "package")
    assert len(set(hours(tmp_path)["minute"].to_pylist())) == 10


def test_hours_of_schema_1_are_closed_too(tmp_path: Path) -> None:
    old_store(tmp_path)
    store = Store(tmp_path, "db1", KEPT)
    assert store.write(minute(START_S + 86_400), "package")
    (part,) = tmp_path.rglob("rollups/date=2026-11-18/**/hour-11-*.parquet")
    assert is_closed(part) and not list(tmp_path.rglob("hour-??.parquet"))
    assert pc.sum(hours(tmp_path)["calls"]).as_py() == 3 * pc.sum(minute_rows()["calls"]).as_py()


def test_a_minute_of_a_closed_hour_counts_in_the_next_one(tmp_path: Path) -> None:
    store = Store(tmp_path, "db1", KEPT)
    for start_s in (0, 3600, 3600 + 300):
        assert store.write(minute(START_S + start_s), "package")
    (part,) = tmp_path.rglob("rollups/**/hour-11-*.parquet")
    before = part.read_bytes()
    assert store.write(minute(START_S + 120), "package")
    assert part.read_bytes() == before and store.moved == 1
    assert pc.sum(rows(tmp_path)["calls"]).as_py() == 4 * pc.sum(minute_rows()["calls"]).as_py()


def test_an_hour_far_ahead_is_closed_once_the_clock_is_right(tmp_path: Path) -> None:
    store = Store(tmp_path, "db1", KEPT)
    for start_s in (10 * 86_400, 3600, 0):
        assert store.write(minute(START_S + start_s), "package")
    (ahead,) = tmp_path.rglob("rollups/date=2026-11-28/**/hour*.parquet")
    assert is_closed(ahead)
    near = list(tmp_path.rglob("rollups/date=2026-11-18/**/hour*.parquet"))
    assert [is_closed(one) for one in near] == [False, False]


def test_a_second_agent_is_refused_in_one_line(tmp_path: Path) -> None:
    store = Store(tmp_path, "db1", KEPT)
    with pytest.raises(QjouleError, match=r"another agent writes to it\Z"):
        Store(tmp_path, "db1", KEPT)
    store.close()
    Store(tmp_path, "db1", KEPT).close()


def test_a_store_that_is_not_ours_is_refused_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(QjouleError, match=r"store\.path: .*: make it a directory of the agent"):
        Store(file, "db1", KEPT)


def test_a_host_cannot_name_a_path(tmp_path: Path) -> None:
    store = Store(tmp_path, "../../x y", KEPT)
    assert store.write(minute(), "package")
    (file,) = tmp_path.rglob("hour-*")
    assert file.parent.name == "host=.._.._x_y"


def test_a_disk_that_takes_nothing_is_told_once_and_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    store = Store(tmp_path, "db1", KEPT)
    rollups = Rollups(tmp_path, store, said.append)
    monkeypatch.setattr("qjoule.agent.part_files.write_whole", full)
    rollups.start()
    for number in range(4):
        for one in folded():
            rollups.take(one, START_S + 60.0 * number)
    rollups._pass_on()
    while rollups._waiting.qsize():
        pass
    monkeypatch.undo()
    rollups.take(folded()[0], START_S + 600.0)
    rollups.close()
    assert store.failures >= 3
    assert sum("No space left" in words for words in said) == 1
    assert said[-1] == "store: writes again"
    assert len(list(tmp_path.rglob("hour-*.parquet"))) == 1


def full(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_read_only_store_is_no_end(tmp_path: Path) -> None:
    store = Store(tmp_path, "db1", KEPT)
    (tmp_path / "rollups").write_text("in the way")
    assert not store.write(minute(), "package")
    assert store.failures == 1 and "rollups" in store.trouble


def test_shapes_and_servers_are_kept_with_their_time(tmp_path: Path) -> None:
    for release, now_s in (("11.4", START_S), ("11.8", START_S + 3600)):
        store = Store(tmp_path, "db1", KEPT)
        rollups = Rollups(tmp_path, store, str)
        rollups.start()
        rollups.take(folded()[0], float(now_s))
        servers = [Server(1, "db:1", "kind", release, "/usr/sbin/x", "symbol")]
        rollups.describe(Counters(Limits(), 0.0), servers, float(now_s))
        rollups.close()
    found = pq.read_table(next(tmp_path.rglob("servers-*.parquet"))).to_pylist()
    assert [one["version"] for one in found] == ["11.4", "11.8"]
    assert found[0]["valid_to"] == found[1]["valid_from"] and found[1]["valid_to"] is None


def test_slow_tables_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qjoule.agent.slow_tables.MAX_ROWS", 100)
    table = SlowTable(("a",), ("b",))
    for number in range(1000):
        table.tell((str(number), "x"), number)
    assert len(table.table()) <= 100
    again = SlowTable(("a",), ("b",))
    assert again.load(table.table()) and again.table().equals(table.table())
    assert not SlowTable(("c",), ("b",)).load(table.table())


def test_errors_are_rounded_away_from_zero() -> None:
    values = np.array([0.0, 1.0, 1.0001, 16777217.0, 123456.789, 1e-9, 3.3e30])
    assert np.all((values <= rounded_up(values)) & (rounded_up(values) <= values * 1.008))
    assert np.all(rounded_up(-values) == -rounded_up(values))


def test_files_are_for_our_user_alone(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        store = Store(tmp_path / "store", "db1", KEPT)
        store.write(minute(), "package")
    finally:
        os.umask(before)
    for one in (tmp_path / "store").rglob("*"):
        assert not one.stat().st_mode & 0o077, one
