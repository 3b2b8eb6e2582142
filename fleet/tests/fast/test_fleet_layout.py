# SPDX-License-Identifier: Apache-2.0
"""Names of a dataset's parts: what is written can be read back, and nothing else is a part."""

from __future__ import annotations

from pathlib import Path

import pytest

from qjoule.agent import rollup_layout as layout
from qjoule.agent.rollup_layout import Part, part_at
from qjoule.agent.store_directory import host_id_of

HOUR_S = 1_795_000_000 // 3600 * 3600
ID = "0123456789abcdef"


def test_a_path_names_its_part_by_utc() -> None:
    for table in layout.TABLES:
        for number in (ID, ""):
            hour_s = None if table in layout.SLOW else HOUR_S
            part = Part(table, "db-1.example", number, hour_s)
            assert part_at(part.path) == part
    part = Part("rollups", "db1", ID, HOUR_S)
    assert part.path == f"rollups/date=2026-11-18/host=db1/hour-11-{ID}.parquet"
    assert part.metadata()["qjoule.hour"] == "2026-11-18T11:00:00Z"


@pytest.mark.parametrize(
    "path",
    [
        f"rollups/date=2026-11-18/host=db1/.hour-11-{ID}.parquet.tmp",
        f"rollups/date=2026-13-18/host=db1/hour-11-{ID}.parquet",
        f"rollups/date=2026-11-18/host=db1/hour-24-{ID}.parquet",
        f"rollups/date=2026-11-18/host=/../hour-11-{ID}.parquet",
        f"rollups/date=2026-11-18/host=db1/hour-11-{ID}.parquet\n",
        f"/rollups/date=2026-11-18/host=db1/hour-11-{ID}.parquet",
        f"shapes/host=db1/servers-{ID}.parquet",
        f"rollups/date=٢٠٢٦-11-18/host=db1/hour-11-{ID}.parquet",
    ],
)
def test_other_paths_name_no_part(path: str) -> None:
    assert part_at(path) is None


@pytest.mark.parametrize("name", ["../../x y", "", "ä" * 300, "a/b", "db1.example"])
def test_no_host_name_leaves_its_directory(name: str) -> None:
    safe = layout.host_name(name)
    assert layout.plain(safe) and "/" not in safe
    assert part_at(Part("shapes", safe, ID).path) is not None


def test_the_host_id_is_the_machines_and_does_not_tell_its_machine_id(tmp_path: Path) -> None:
    """Without a machine id the store keeps a random one."""
    (tmp_path / "etc").mkdir()
    file, machine_id = tmp_path / "etc/machine-id", "0123456789abcdef" * 2
    file.write_text(machine_id + "\n")
    number = host_id_of(tmp_path / "no store", tmp_path)
    assert number == host_id_of(tmp_path / "another", tmp_path) and len(number) == 16
    assert number not in machine_id
    for content in ("", "uninitialized\n"):
        file.write_text(content)
        random_id = host_id_of(tmp_path, tmp_path)
        assert host_id_of(tmp_path, tmp_path) == random_id != number and len(random_id) == 16
        (tmp_path / "host-id").write_text("rubbish")
        assert host_id_of(tmp_path, tmp_path) != random_id
