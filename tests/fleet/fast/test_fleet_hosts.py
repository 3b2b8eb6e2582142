# SPDX-License-Identifier: Apache-2.0
"""Hosts that stop, share a name or an id, or were upgraded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import fleet_dataset as made
from fleet_asked import BEGIN_S, asked, energies, rewritten
from fleet_dataset import Fleet, Host
from qjoule.fleet.layout import HOUR_S, HOURS, ROLLUPS, Part


def test_a_host_that_stops_is_missing_and_one_without_parts_is_silent(tmp_path: Path) -> None:
    fleet = Fleet([Host("db1"), Host("db2", hours=(0,)), Host("db3", hours=())], 2, (0,))
    found = asked(made.write(tmp_path, fleet))
    assert [(host, (hour - BEGIN_S) // HOUR_S) for host, hour in found.read.missing] == [
        ("db2", 1),
        ("db2", 2),
    ]
    assert found.read.silent == ("db3",)


def test_two_hosts_of_one_name_are_told_apart(tmp_path: Path) -> None:
    same = [Host("db1", "aaaaaa1111111111"), Host("db1", "aaaaaa2222222222"), Host("db2")]
    found = asked(made.write(tmp_path, Fleet(same, 2, (0,))))
    assert set(energies(found)) == {"db1#aaaaaa1", "db1#aaaaaa2", "db2"}
    assert found.read.hosts == 3


def test_two_hosts_of_one_id_are_not_added_up(tmp_path: Path) -> None:
    """Cloned machines: one of two parts for the same hour counts, and the other is named."""
    cloned = [Host("db1", "a" * 16), Host("db2", "a" * 16)]
    found = asked(made.write(tmp_path, Fleet(cloned, 2, (0,))))
    assert set(energies(found)) == {"db1"}
    refused = [one for one in found.read.refused if one.path.startswith(HOURS)]
    assert [one.reason for one in refused] == [
        f"it has the host id and the hour of {one.path.replace('db2', 'db1')}" for one in refused
    ]
    assert len(refused) == 3


def test_schema_1_and_2_are_added_up(tmp_path: Path) -> None:
    """An agent that was upgraded after its first hour: one host."""
    old, new = Host("db1", schema="1", hours=(0,)), Host("db1", hours=(1, 2))
    fleet = Fleet([old, new], 2, (0, 30))
    found = asked(made.write(tmp_path, fleet), "host,policy")
    assert set(energies(found)) == {"db1 ", "db1 separate"}
    assert found.read.hosts == 1 and not found.read.refused and not found.read.missing


def test_a_part_of_schema_1_that_was_taken_over_counts_once(tmp_path: Path) -> None:
    old, new = Host("db1", schema="1", hours=(0,)), Host("db1", hours=(0,))
    fleet = Fleet([old, new], 2, (0, 30), sums=False)
    root = made.write(tmp_path, fleet)
    both = asked(root).rows
    assert len(both) == 2, "of schema 1 the idle policy is not known"
    path = root / Part(ROLLUPS, "db1", new.id, BEGIN_S).path
    rewritten(path, metadata={"qjoule.includes": "1"})
    alone = asked(made.write(tmp_path / "new", replace(fleet, hosts=[new])))
    assert asked(root).rows == alone.rows and len(alone.rows) == 1


def test_an_agents_own_store_is_a_dataset(tmp_path: Path) -> None:
    fleet = Fleet([Host("db1", schema="1")], 2, (0, 30))
    assert len(energies(asked(made.write(tmp_path, fleet)))) == 1
