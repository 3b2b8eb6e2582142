# SPDX-License-Identifier: Apache-2.0
"""Which parts answer a question: bad parts are named and left out, and the others are read."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fleet_dataset as made
from fleet_asked import BEGIN_S, asked, energies, hours, rewritten, selected
from fleet_dataset import Fleet, Host
from qjoule.errors import QjouleError, UsageError
from qjoule.fleet import footers
from qjoule.fleet.asked import InProcess, Question, Reader
from qjoule.fleet.catalog import Selection
from qjoule.fleet.files import LocalFiles, dataset
from qjoule.fleet.layout import HOUR_S, HOURS, ROLLUPS, Part
from qjoule.fleet.questions import parse_by
from qjoule.fleet.relations import Limits
from qjoule.fleet.times import Range
from qjoule.fleet.top import top

SMALL = Fleet(made.hosts(2), shapes=2, minutes=(0, 30))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.write(tmp_path_factory.mktemp("fleet"), SMALL)


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "fleet"))


def part(root: Path, table: str = HOURS, host: int = 0, hour: int = 1) -> Path:
    one = SMALL.hosts[host]
    return root / Part(table, one.name, one.id, BEGIN_S + hour * HOUR_S).path


def reasons(found: Selection) -> list[str]:
    return [one.reason for one in found.refused]


def test_hours_inside_are_read_from_their_sums_and_edges_by_minute(whole: Path) -> None:
    found = selected(whole)
    assert (len(found.whole), len(found.edges), found.refused, found.missing) == (6, 0, [], [])
    found = selected(whole, hours(0.5, 2.25))
    kinds = {(one.part.table, (one.part.hour_s or 0) - BEGIN_S) for one in found.parts}
    assert kinds == {(ROLLUPS, 0), (HOURS, HOUR_S), (ROLLUPS, 2 * HOUR_S)}
    assert [len(selected(whole, hours(3, 9)).parts), len(selected(whole, hours(-9, 0)).parts)] == [
        *(0, 0)
    ]


def test_a_range_does_not_divide_the_rows_of_ten_minutes(tmp_path: Path) -> None:
    """In a past hour rare statements have a row for ten minutes; in an open hour, for each."""
    fleet = Fleet([Host("db1", hours=(0,))], 4, (0, 3, 5, 31), by_minute=1)
    root = made.write(tmp_path / "past", fleet)
    assert {one["minute"].minute for one in pq.read_table(
        next(root.glob("rollups/*/*/*")), partitioning=None
    ).to_pylist()} == {0, 3, 5, 30, 31}  # fmt: skip
    found = asked(root, found=Range(BEGIN_S + 120, BEGIN_S + 1000))
    assert str(found.range) == "2026-11-01T00:10:00Z to 2026-11-01T00:20:00Z"
    assert found.notes == [f"past hours are kept by 10 minutes: {found.range} is taken"]
    with pytest.raises(UsageError, match="give a longer range"):
        asked(root, found=Range(BEGIN_S + 120, BEGIN_S + 300))
    still = made.write(tmp_path / "open", replace(fleet, open=True, sums=False))
    exact = asked(still, found=Range(BEGIN_S + 120, BEGIN_S + 300))
    assert exact.range.seconds == 180 and exact.totals[0].unaccounted_nj == 0


def test_an_hour_without_sums_is_read_by_minute(whole: Path, copy: Path) -> None:
    part(copy).unlink()
    assert energies(asked(copy)) == energies(asked(whole))
    assert len(selected(copy).edges) == 1


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + b"\0" * 5000 + b"PAR1", b"x" * 9999])
def test_rubbish_is_named_and_its_hour_read_by_minute(
    whole: Path, copy: Path, content: bytes
) -> None:
    part(copy).write_bytes(content)
    found = asked(copy)
    assert energies(found) == energies(asked(whole))
    (refused,) = found.read.refused
    assert refused.path == str(part(copy).relative_to(copy))
    assert refused.reason.startswith("it is truncated")


def test_a_truncated_part_whose_minutes_are_missing_too_is_a_gap(whole: Path, copy: Path) -> None:
    data = part(copy).read_bytes()
    for size in (len(data) // 2, len(data) - 1, 20):
        part(copy).write_bytes(data[:size])
        part(copy, ROLLUPS).unlink(missing_ok=True)
        found = asked(copy)
        assert found.read.missing == (("db1", BEGIN_S + HOUR_S),)
        assert len(found.read.refused) == 1
        assert energies(found)["db2"] == energies(asked(whole))["db2"]
        assert energies(found)["db1"] < energies(asked(whole))["db1"]


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"qjoule.rollup": "3"}, "its schema is version 3, and this qjoule reads 1 and 2"),
        ({"qjoule.rollup": "two"}, "not a version"),
        ({"qjoule.rollup": ""}, "it has no qjoule.rollup"),
        ({"qjoule.host": "db2"}, "qjoule.host is 'db2' in the part, and 'db1' by its path"),
        ({"qjoule.host_id": "0" * 16}, "qjoule.host_id is '0000000000000000' in the part"),
        ({"qjoule.hour": "2026-11-01T05:00:00Z"}, "qjoule.hour is '2026-11-01T05:00:00Z'"),
        ({"qjoule.table": "tags"}, "qjoule.table is 'tags'"),
        ({"qjoule.host": ""}, "it does not say qjoule.host"),
        ({"qjoule.rollup": "1"}, "it is of schema 1, which has no host id, but its name has one"),
    ],
)
def test_parts_whose_metadata_lie_are_left_out(
    copy: Path, metadata: dict[str, str], reason: str
) -> None:
    rewritten(part(copy), metadata=metadata)
    assert [reason in one for one in reasons(selected(copy))] == [True]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"energy_nj": None}, "it has no column energy_nj"),
        ({"energy_nj": lambda t: pa.array(["1"] * len(t))}, "energy_nj is of type string"),
        ({"server": lambda t: pa.array([1] * len(t))}, "server is of type int64"),
        ({"latency": lambda t: pa.array([[0.5]] * len(t))}, "its column latency is of type list"),
        (
            {"minute": lambda t: pa.array([BEGIN_S * 1000] * len(t), pa.timestamp("ms", "UTC"))},
            "it has rows of another hour",
        ),
        (
            {"minute": lambda t: pa.array([None] * len(t), pa.timestamp("ms", "UTC"))},
            "it does not say which minutes it has",
        ),
    ],
)
def test_parts_whose_columns_are_others_are_left_out(
    copy: Path, columns: dict[str, Any], reason: str
) -> None:
    rewritten(part(copy), **columns)
    assert [reason in one for one in reasons(selected(copy))] == [True]


def test_a_newer_minor_schema_is_read_without_its_columns(whole: Path, copy: Path) -> None:
    path = part(copy)
    table = pq.read_table(path, partitioning=None)
    keys = {**table.schema.metadata, b"qjoule.rollup": b"2.1"}
    more = table.append_column("carbon_g", pa.array(["what"] * len(table)))
    pq.write_table(more.replace_schema_metadata(keys), path)
    assert energies(asked(copy)) == energies(asked(whole))


def test_a_part_elsewhere_than_it_says_is_left_out(whole: Path, copy: Path) -> None:
    """Under another date, another host, or another hour: the same joules would count twice."""
    source = part(copy)
    others = [
        source.parents[1] / "host=db9" / source.name,
        source.parents[2] / "date=2026-11-02" / "host=db1" / source.name,
        source.with_name(source.name.replace("hour-01", "hour-04")),
    ]
    for other in others:
        other.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, other)
    found = asked(copy, found=hours(0, 48))
    assert len(found.read.refused) == 3
    assert energies(found) == energies(asked(whole))


def test_names_that_are_no_parts_are_named_and_hidden_ones_ignored(copy: Path) -> None:
    directory = part(copy).parent
    for name in (".hour-01.tmp", ".hidden"):
        (directory / name).write_bytes(b"being written")
    for name in ("hour-01 (1).parquet", "hour-24-0123456789abcdef.parquet", "x.damaged"):
        (directory / name).write_bytes(b"what")
    (copy / HOURS / "date=never").mkdir()
    found = selected(copy)
    assert len(found.refused) == 4 and len(found.whole) == 6
    assert {"its name is not that of a part", "its name is not a date's"} == set(reasons(found))


def test_links_and_pipes_are_not_opened(copy: Path, tmp_path: Path) -> None:
    first, second = part(copy), part(copy, hour=2)
    elsewhere = tmp_path / "elsewhere.parquet"
    first.rename(elsewhere)
    first.symlink_to(elsewhere)
    second.unlink()
    os.mkfifo(second)
    found = selected(copy)
    assert reasons(found) == ["it is no regular file"] * 2 and len(found.edges) == 2


def test_a_directory_that_cannot_be_listed_is_named(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = str(part(copy).parent)
    scandir = os.scandir

    def refusing(path: Any) -> Any:
        if str(path) == closed:
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    found = selected(copy)
    assert reasons(found) == ["cannot be listed: Permission denied"]
    assert len(found.whole) == 3 and len(found.edges) == 3


def test_a_part_that_is_listed_but_gone_is_named(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stale listing, or an agent that removes old hours meanwhile."""
    opened = LocalFiles.open
    gone = str(part(copy).relative_to(copy))

    def stale(self: LocalFiles, path: str) -> Any:
        if path == gone:
            raise FileNotFoundError(2, "No such file or directory")
        return opened(self, path)

    monkeypatch.setattr(LocalFiles, "open", stale)
    found = selected(copy)
    assert reasons(found) == ["it is listed, but not there"] and len(found.edges) == 1


def test_parts_beyond_the_bounds_are_left_out(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footers, "MOST_ROWS", 5)
    assert {one.partition(",")[0] for one in reasons(selected(copy))} == {
        "it has 10 rows",
        "it has 20 rows",
    }
    monkeypatch.setattr(footers, "MOST_BYTES", 100)
    assert all("MiB" in one for one in reasons(selected(copy)))


def test_a_part_that_arrives_late_is_missing_until_then(whole: Path, copy: Path) -> None:
    late = [part(copy), part(copy, ROLLUPS)]
    kept = [one.read_bytes() for one in late]
    for one in late:
        one.unlink()
    assert asked(copy).read.missing == (("db1", BEGIN_S + HOUR_S),)
    for one, data in zip(late, kept, strict=True):
        one.write_bytes(data)
    found = asked(copy)
    assert energies(found) == energies(asked(whole)) and not found.read.missing


def test_there_must_be_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, message in ((tmp_path / "none", "cannot read"), (tmp_path / "file", "no directory")):
        with pytest.raises(QjouleError, match=message):
            dataset(str(path))
    with pytest.raises(QjouleError, match="cannot read nosuch://x"):
        dataset("nosuch://x")


def test_the_same_over_a_filesystem_of_fsspec(whole: Path) -> None:
    import fsspec  # noqa: PLC0415

    memory = fsspec.filesystem("memory")
    memory.put(f"{whole}/", "/test-fleet/", recursive=True)
    try:
        reader = Reader(dataset("memory://test-fleet"), Limits(200, 1), InProcess())
        found = top(reader, hours(0.5, 2.25), Question(parse_by("host")))
        local = asked(whole, found=hours(0.5, 2.25))
        assert energies(found) == energies(local)
    finally:
        memory.rm("/test-fleet", recursive=True)
