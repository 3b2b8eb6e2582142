# SPDX-License-Identifier: Apache-2.0
"""Names of a dataset's parts: what is written can be read back, and nothing else is a part."""

from __future__ import annotations

from pathlib import Path

import pytest

from qjoule.agent.host_identity import host_id
from qjoule.fleet import layout
from qjoule.fleet.layout import Part, part_at

HOUR_S = 1_795_000_000 // 3600 * 3600
ID = "0123456789abcdef"


@pytest.mark.parametrize("table", layout.TABLES)
@pytest.mark.parametrize("number", [ID, ""])
def test_a_path_names_its_part(table: str, number: str) -> None:
    part = Part(table, "db-1.example", number, None if table in layout.SLOW else HOUR_S)
    assert part_at(part.path) == part


def test_dates_and_hours_are_utc() -> None:
    part = Part("rollups", "db1", ID, HOUR_S)
    assert part.path == f"rollups/date=2026-11-18/host=db1/hour-11-{ID}.parquet"
    assert part.metadata()["qjoule.hour"] == "2026-11-18T11:00:00Z"


@pytest.mark.parametrize(
    "path",
    [
        f"rollups/date=2026-11-18/host=db1/.hour-11-{ID}.parquet.tmp",
        f"rollups/date=2026-11-18/host=db1/hour-11-{ID}.parquet.damaged",
        f"rollups/date=2026-13-18/host=db1/hour-11-{ID}.parquet",
        f"rollups/date=2026-11-18/host=db1/hour-24-{ID}.parquet",
        f"rollups/date=2026-11-18/host=/../hour-11-{ID}.parquet",
        f"rollups/date=2026-11-18/host=a b/hour-11-{ID}.parquet",
        f"rollups/date=2026-11-18/host=db1/hour-11-{ID.upper()}.parquet",
        f"rollups/date=2026-11-18/host=db1/hour-11-{ID}.parquet\n",
        f"/rollups/date=2026-11-18/host=db1/hour-11-{ID}.parquet",
        f"shapes/host=db1/servers-{ID}.parquet",
        f"manifests/host=db1/{ID}.jsonl",
        f"rollups/date=٢٠٢٦-11-18/host=db1/hour-11-{ID}.parquet",
    ],
)
def test_other_paths_name_no_part(path: str) -> None:
    assert part_at(path) is None


def test_metadata_that_contradict_the_path_are_noticed() -> None:
    part = Part("rollups", "db1", ID, HOUR_S)
    assert not part.contradicts(part.metadata(closed=True))
    assert not part.contradicts({"qjoule.rollup": "1"})
    for other in (
        Part("hours", "db1", ID, HOUR_S),
        Part("rollups", "db2", ID, HOUR_S),
        Part("rollups", "db1", ID[::-1], HOUR_S),
        Part("rollups", "db1", ID, HOUR_S + 3600),
    ):
        assert part.contradicts(other.metadata())


@pytest.mark.parametrize(("version", "words"), [("3", "version 3"), ("x", "not a version")])
def test_other_versions_are_refused_in_words(version: str, words: str) -> None:
    assert words in layout.unreadable(version)


def test_versions_that_only_add_columns_can_be_read() -> None:
    assert not any(map(layout.unreadable, ("1", "2", "2.1", "2.17")))
    assert layout.unreadable(None)


@pytest.mark.parametrize("name", ["../../x y", "", "ä" * 300, "a/b", "db1.example"])
def test_no_host_name_leaves_its_directory(name: str) -> None:
    found = layout.host_name(name)
    assert layout.plain(found) and "/" not in found
    assert part_at(Part("shapes", found, ID).path) is not None


def test_the_host_id_is_the_machines_and_does_not_tell_its_machine_id(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    machine_id = "0123456789abcdef" * 2
    (tmp_path / "etc/machine-id").write_text(machine_id + "\n")
    found = host_id(tmp_path / "no store", tmp_path)
    assert found == host_id(tmp_path / "another", tmp_path) and len(found) == 16
    assert found not in machine_id


@pytest.mark.parametrize("content", [None, "", "uninitialized\n"])
def test_without_a_machine_id_the_store_keeps_a_random_one(
    tmp_path: Path, content: str | None
) -> None:
    if content is not None:
        (tmp_path / "etc").mkdir()
        (tmp_path / "etc/machine-id").write_text(content)
    found = host_id(tmp_path, tmp_path)
    assert host_id(tmp_path, tmp_path) == found and len(found) == 16
    (tmp_path / "host-id").write_text("rubbish")
    assert host_id(tmp_path, tmp_path) != found
