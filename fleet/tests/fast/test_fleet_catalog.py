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

import fleet_dataset
from fleet_answers import BEGIN_S, energies, hours, rewritten, selected, top_of
from fleet_dataset import Fleet, Host
from qjoule.agent.rollup_layout import HOUR_S, HOURS, ROLLUPS, Part
from qjoule.errors import UsageError
from qjoule_fleet import footers
from qjoule_fleet.catalog import Selection
from qjoule_fleet.times import Range

SMALL = Fleet(fleet_dataset.hosts(2), shapes=2, minutes=(0, 30))
DB1_HOUR_1 = ("db1", BEGIN_S + HOUR_S)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fleet_dataset.write(tmp_path_factory.mktemp("fleet"), SMALL)


@pytest.fixture
def copy(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "fleet"))


def part(root: Path, table: str = HOURS, hour: int = 1) -> Path:
    """A part of db1."""
    db1 = SMALL.hosts[0]
    return root / Part(table, db1.name, db1.id, BEGIN_S + hour * HOUR_S).path


def reasons(selection: Selection) -> list[str]:
    return [refused.reason for refused in selection.refused]


def test_hours_inside_are_read_from_their_sums_and_edges_by_minute(original: Path) -> None:
    inside = selected(original)
    assert (len(inside.hourly), len(inside.edges), inside.refused, inside.missing) == (6, 0, [], [])
    edges = selected(original, hours(0.5, 2.25))
    kinds = {(checked.part.table, (checked.part.hour_s or 0) - BEGIN_S) for checked in edges.parts}
    assert kinds == {(ROLLUPS, 0), (HOURS, HOUR_S), (ROLLUPS, 2 * HOUR_S)}
    assert not selected(original, hours(3, 9)).parts and not selected(original, hours(-9, 0)).parts


def test_a_range_does_not_divide_the_rows_of_ten_minutes(tmp_path: Path) -> None:
    """In a past hour rare statements have a row for ten minutes; in an open hour, for each."""
    fleet = Fleet([Host("db1", hours=(0,))], 4, (0, 3, 5, 31), by_minute=1)
    root = fleet_dataset.write(tmp_path / "past", fleet)
    rows = pq.read_table(next(root.glob("rollups/*/*/*")), partitioning=None)
    assert {minute.minute for minute in rows["minute"].to_pylist()} == {0, 3, 5, 30, 31}
    answer = top_of(root, within=Range(BEGIN_S + 120, BEGIN_S + 1000))
    assert str(answer.range) == "2026-11-01T00:10:00Z to 2026-11-01T00:20:00Z"
    assert answer.notes == [f"past hours are kept by 10 minutes: {answer.range} is taken"]
    with pytest.raises(UsageError, match="give a longer range"):
        top_of(root, within=Range(BEGIN_S + 120, BEGIN_S + 300))
    still = fleet_dataset.write(tmp_path / "open", replace(fleet, open=True, sums=False))
    exact = top_of(still, within=Range(BEGIN_S + 120, BEGIN_S + 300))
    assert exact.range.seconds == 180 and exact.totals[0].unaccounted_nj == 0


def test_instead_of_a_truncated_part_minutes_are_read_or_it_is_a_gap_until_it_arrives(
    original: Path, copy: Path
) -> None:
    data, minutes = part(copy).read_bytes(), part(copy, ROLLUPS).read_bytes()
    damaged = (b"", b"PAR1" + b"\0" * 5000 + b"PAR1", data[: len(data) // 2], data[:-1])
    for content in damaged:
        part(copy).write_bytes(content)
        answer = top_of(copy)
        assert energies(answer) == energies(top_of(original))
        (refused,) = answer.read.refused
        assert refused.path == str(part(copy).relative_to(copy))
        assert refused.reason.startswith("it is truncated")
    part(copy, ROLLUPS).unlink()
    for content in damaged:
        part(copy).write_bytes(content)
        answer = top_of(copy)
        assert answer.read.missing == (DB1_HOUR_1,) and len(answer.read.refused) == 1
        assert energies(answer)["db2"] == energies(top_of(original))["db2"]
        assert energies(answer)["db1"] < energies(top_of(original))["db1"]
    part(copy).write_bytes(data)
    part(copy, ROLLUPS).write_bytes(minutes)
    answer = top_of(copy)
    assert energies(answer) == energies(top_of(original)) and not answer.read.missing


TIME = pa.timestamp("ms", "UTC")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"qjoule.rollup": "3"}, "its schema is version 3, and this qjoule reads 1 and 2"),
        ({"qjoule.host": "db2"}, "qjoule.host is 'db2' in the part, and 'db1' by its path"),
        ({"qjoule.host_id": "0" * 16}, "qjoule.host_id is '0000000000000000' in the part"),
        ({"qjoule.rollup": "1"}, "it is of schema 1, which has no host id, but its name has one"),
        ({"energy_nj": None}, "it has no column energy_nj"),
        ({"energy_nj": lambda t: pa.array(["1"] * len(t))}, "energy_nj is of type string"),
        (
            {"minute": lambda t: pa.array([(BEGIN_S + 2 * HOUR_S) * 1000] * len(t), TIME)},
            "it has rows of another hour",
        ),
    ],
)
def test_parts_that_lie_or_have_other_columns_are_left_out(
    copy: Path, changes: dict[str, Any], reason: str
) -> None:
    metadata = {key: value for key, value in changes.items() if key.startswith("qjoule.")}
    columns = {key: value for key, value in changes.items() if key not in metadata}
    rewritten(part(copy), metadata=metadata, **columns)
    assert [reason in text for text in reasons(selected(copy))] == [True]


def test_a_newer_minor_schema_is_read_without_its_columns(original: Path, copy: Path) -> None:
    rewritten(
        part(copy), metadata={"qjoule.rollup": "2.9"}, carbon_g=lambda t: pa.array(["x"] * len(t))
    )
    assert energies(top_of(copy)) == energies(top_of(original))


def test_names_that_are_no_parts_are_named_and_hidden_ones_ignored(copy: Path) -> None:
    directory = part(copy).parent
    for name in (".hour-01.tmp", ".hidden"):
        (directory / name).write_bytes(b"being written")
    for name in ("hour-01 (1).parquet", "hour-24-0123456789abcdef.parquet", "x.damaged"):
        (directory / name).write_bytes(b"what")
    (copy / HOURS / "date=never").mkdir()
    selection = selected(copy)
    assert len(selection.refused) == 4 and len(selection.hourly) == 6
    assert {"its name is not that of a part", "its name is not a date's"} == set(reasons(selection))


def test_links_and_pipes_are_not_opened(copy: Path, tmp_path: Path) -> None:
    first, second = part(copy), part(copy, hour=2)
    elsewhere = tmp_path / "elsewhere.parquet"
    first.rename(elsewhere)
    first.symlink_to(elsewhere)
    second.unlink()
    os.mkfifo(second)
    selection = selected(copy)
    assert reasons(selection) == ["it is no regular file"] * 2 and len(selection.edges) == 2


def test_parts_beyond_the_bounds_are_left_out(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footers, "MOST_ROWS", 5)
    refused = {text.partition(",")[0] for text in reasons(selected(copy))}
    assert refused == {"it has 10 rows", "it has 20 rows"}
    monkeypatch.setattr(footers, "MOST_BYTES", 100)
    assert all("MiB" in text for text in reasons(selected(copy)))


def test_a_host_that_stops_is_missing_and_one_without_parts_is_silent(tmp_path: Path) -> None:
    fleet = Fleet([Host("db1"), Host("db2", hours=(0,)), Host("db3", hours=())], 2, (0,))
    read = top_of(fleet_dataset.write(tmp_path, fleet)).read
    assert read.missing == (("db2", BEGIN_S + HOUR_S), ("db2", BEGIN_S + 2 * HOUR_S))
    assert read.silent == ("db3",)


def test_hosts_of_one_name_are_told_apart_and_of_one_id_count_once(tmp_path: Path) -> None:
    """Machines with one id are clones: one of two parts for the same hour counts."""
    same = [Host("db1", "aaaaaa1111111111"), Host("db1", "aaaaaa2222222222"), Host("db2")]
    answer = top_of(fleet_dataset.write(tmp_path / "name", Fleet(same, 2, (0,))))
    assert set(energies(answer)) == {"db1#aaaaaa1", "db1#aaaaaa2", "db2"}
    assert answer.read.hosts == 3
    cloned = [Host("db1", "a" * 16), Host("db2", "a" * 16)]
    answer = top_of(fleet_dataset.write(tmp_path / "id", Fleet(cloned, 2, (0,))))
    assert set(energies(answer)) == {"db1"}
    refused = [refusal for refusal in answer.read.refused if refusal.path.startswith(HOURS)]
    assert len(refused) == 3
    for refusal in refused:
        other = refusal.path.replace("db2", "db1")
        assert refusal.reason == f"it has the host id and the hour of {other}"


def test_waits_of_an_earlier_agents_hours_are_not_recorded(tmp_path: Path) -> None:
    old, new = Host("db1", schema="2", hours=(0,)), Host("db1", hours=(1, 2))
    root = fleet_dataset.write(tmp_path, Fleet([old, new], 3, (0, 30)))
    (before,) = top_of(root, within=hours(0, 1)).rows
    (after,) = top_of(root, within=hours(1, 3)).rows
    (both,) = top_of(root).rows
    assert before.waits is None and before.calls and not top_of(root).read.refused
    assert after.waits is not None and both.waits == after.waits
    assert after.helpers is not None and both.helpers == after.helpers


def test_schema_1_and_2_are_added_up(tmp_path: Path) -> None:
    """An agent that was upgraded after its first hour: one host."""
    old, new = Host("db1", schema="1", hours=(0,)), Host("db1", hours=(1, 2))
    answer = top_of(fleet_dataset.write(tmp_path, Fleet([old, new], 2, (0, 30))), "host,policy")
    assert set(energies(answer)) == {"db1 ", "db1 separate"}
    read = answer.read
    assert read.hosts == 1 and not read.refused and not read.missing
