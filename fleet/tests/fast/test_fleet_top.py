# SPDX-License-Identifier: Apache-2.0
"""`qjoule fleet top`: rows, exports, and the notes beside them."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import fleet_dataset
from cli_runner import invoke, printed_json
from fleet_answers import BEGIN_S
from fleet_dataset import Fleet, Host
from qjoule.agent.hourly_tables import HELPERS, WAITS
from qjoule.agent.rollup_layout import HOUR_S, Part
from qjoule_fleet.commands.fleet import command

DAY = ("--from", "2026-11-01T00:00Z", "--to", "2026-11-01T03:00Z", "--memory", 200, "--threads", 1)
VM = Host("db3", grade="estimated", total_error=0.5)
HOSTS = [
    Host("db1", servers=("mariadb", "redis"), total_error=0.0),
    Host("db2", total_error=0.0),
    VM,
]
FLEET = Fleet(HOSTS, shapes=4, minutes=(0, 30), tags=("alpha", "beta"))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fleet_dataset.write(tmp_path_factory.mktemp("fleet"), FLEET)


run = partial(invoke, command, "top")
document = partial(printed_json, command, "top", "--json")


def test_the_table_names_shapes_and_what_they_add_up_to(root: Path) -> None:
    text = run(root, *DAY).output
    assert "time      2026-11-01T00:00:00Z to 2026-11-01T03:00:00Z" in text
    assert "read      3 hosts, 9 parts" in text
    assert text.count("SELECT c3 FROM t WHERE id = ?") == 2, "a row for each grade"
    assert "rows of different grades or idle policies are not added up" in text
    assert "measured, idle separate J" in text and "estimated ±50 %, idle separate J" in text


def test_json_has_exact_energies_and_says_what_was_read(root: Path) -> None:
    printed = document(root, *DAY, "--limit", 3)
    assert printed["schema"] == "qjoule.fleet/1" and printed["by"] == ["fingerprint"]
    assert len(printed["rows"]) == 3 and printed["other_rows"] == 5
    for total in printed["totals"]:
        assert total["unaccounted_nj"] == 0 and total["measured_nj"] > total["rows_nj"]
        assert total["lost_records"] == 3 * 2 * 3 * total["hosts"]
    row = printed["rows"][0]
    low, high = row["energy_j_ci95"]
    assert low < row["energy_j"] < high
    assert row["j_per_call"] == pytest.approx(row["energy_j"] / row["calls"])
    assert 1e3 < row["latency_ns_p50"] < row["latency_ns_p95"] < 1e6
    names = (*WAITS, *HELPERS)
    waits = [{name: row[name] for name in names} for row in document(root, *DAY)["rows"]]
    recorded = [wait for wait in waits if wait["waits_latency_ns"] is not None]
    assert 0 < len(recorded) < len(waits)
    for wait in recorded:
        calls = wait["waits_latency_ns"] // fleet_dataset.WAITED_NS[0]
        assert list(wait.values()) == [
            calls * ns for ns in (*fleet_dataset.WAITED_NS, *fleet_dataset.HELPED_NS)
        ]
    assert printed["read"]["refused"] == [] and printed["read"]["missing_hours"] == []


def test_the_table_of_waits_has_shares_of_the_latency(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    text = run(root, *DAY, "--columns", "waits", "--by", "shape,server").output
    assert "not recorded for 5 of 12 rows" in text and "J/call" not in text
    titles, *lines = (line for line in text.splitlines() if "lat mean" in line or "c1 FROM" in line)
    assert len(lines) == 3
    shares = {"on CPU": "69.7 %", "lock": "25.0 %", "network": "0.3 %", "helpers": "4.2 %"}
    for title, share in shares.items():
        assert all(line[: titles.index(title) + len(title)].endswith(share) for line in lines)
    usual = run(root, *DAY).output
    assert "lock" not in usual and "not recorded" not in usual
    for schema, lacks in (("2", "waits"), ("2.1", "helpers")):
        old = fleet_dataset.write(tmp_path / schema, Fleet([Host("db1", schema=schema)], 2, (0,)))
        table = run(old, *DAY, "--columns", "waits").output.splitlines()
        assert [lacks, "not", "recorded"] in [line.split() for line in table]


def test_rows_lack_the_error_of_the_total_unless_hosts_differ(root: Path, tmp_path: Path) -> None:
    differ = fleet_dataset.write(
        tmp_path, Fleet([VM, replace(VM, name="db4", total_error=0.9)], 1, (0,))
    )
    for where, error, *more in ((root, 0.5), (root, 0.5, "--absolute"), (differ, 0.9)):
        printed = document(where, *DAY, *more)
        total, row = printed["totals"][0], printed["rows"][-1]
        in_rows = (row["energy_j_ci95"][1] > 1.4 * row["energy_j"], total["error_in_rows"])
        assert in_rows == ((bool(more) or where == differ),) * 2
        assert total["total_error"] == pytest.approx(error, rel=0.02)
        assert ("not equally certain" in str(printed["notes"])) == (where == differ)


def test_grades_are_mixed_only_on_request_and_it_is_said(root: Path) -> None:
    apart, mixed = document(root, *DAY), document(root, *DAY, "--mix-grades")
    assert {row["grade"] for row in mixed["rows"]} == {"mixed"} and len(mixed["rows"]) == 4
    sums = [sum(row["energy_nj"] for row in printed["rows"]) for printed in (apart, mixed)]
    assert sums[0] == sums[1]
    assert "added up, as --mix-grades asks" in run(root, *DAY, "--mix-grades").output


def test_tags_have_rows_and_queries_without_one_are_others(root: Path) -> None:
    printed = document(root, *DAY, "--by", "tag:tenant")
    assert {row["tag:tenant"] for row in printed["rows"]} == {"alpha", "beta"}
    assert all(total["other_queries_nj"] > 0 for total in printed["totals"])
    edge = document(root, "--from", "2026-11-01T00:10Z", *DAY[2:], "--by", "tag:tenant")
    assert "tags are kept by hour" in edge["notes"][0]
    assert run(root, *DAY, "--by", "tag:none").exit_code == 0


def test_releases_follow_the_minute_in_which_a_server_changed(tmp_path: Path) -> None:
    host = Host("db1")
    root = fleet_dataset.write(tmp_path, Fleet([host], 2, (0, 30)))
    fleet_dataset.put_slow(root, host, 2, states=[(0, "10.11.6"), (1.25, "11.4.2")])
    rows = document(root, *DAY, "--by", "release")["rows"]
    calls = {row["release"]: row["calls"] for row in rows}
    half = document(root, DAY[0], DAY[1], "--to", "2026-11-01T01:15Z", *DAY[4:], "--by", "host")
    assert calls["mysql 10.11.6"] == half["rows"][0]["calls"]
    assert set(calls) == {"mysql 10.11.6", "mysql 11.4.2"}


def test_csv_and_parquet_add_up_line_by_line(root: Path, tmp_path: Path) -> None:
    records = list(csv.DictReader(io.StringIO(run(root, *DAY, "--format", "csv").output)))
    out = tmp_path / "out.parquet"
    assert run(root, *DAY, "--format", "parquet", "-o", out).exit_code == 0
    table = pq.read_table(out)
    assert json.loads(table.schema.metadata[b"qjoule.fleet/1"])["totals"]
    for rows in (records, table.to_pylist()):
        for grade in ("measured", "estimated"):
            own = [row for row in rows if row["grade"] == grade]
            total = [int(row["energy_nj"]) for row in own if row["kind"] == "total"]
            others = [int(row["energy_nj"]) for row in own if row["kind"] != "total"]
            assert [sum(others)] == total


def test_text_of_strangers_is_safe_in_every_format(tmp_path: Path) -> None:
    hostile = "SELECT \x1b[31m\u202e'; drop table x -- \n=cmd"
    host = Host("db1")
    root = fleet_dataset.write(tmp_path, Fleet([host], 1, (0,), tags=("=1+1", "\x1b]0;x\x07")))
    fleet_dataset.put_slow(root, host, 1, texts={0: hostile})
    for by, form in (("shape", "table"), ("tag:tenant", "table"), ("shape", "csv")):
        text = run(root, *DAY, "--by", by, "--format", form).output
        assert not {"\x1b", "\u202e", "\x07"} & set(text)
    assert "'=1+1" in run(root, *DAY, "--by", "tag:tenant", "--format", "csv").output
    assert document(root, *DAY)["rows"][0]["shape"] == hostile


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--by", "color"), "--by 'color': give shape, fingerprint"),
        (("--by", "tag:a,tag:b"), "one tag at a time"),
        (("--scheduler", "tcp://x:1"), "--scheduler is of --engine dask"),
        (("--format", "parquet"), "add -o FILE"),
        (
            ("--from", "2020-01-01T00:00Z", "--to", "2020-01-02T00:00Z"),
            "nothing from 2020-01-01T00:00:00Z to 2020-01-02T00:00:00Z: the dataset has "
            "2026-11-01T00:00:00Z to 2026-11-02T00:00:00Z; see --from, --to and --last",
        ),
    ],
)
def test_wrong_arguments_are_named(
    root: Path, arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    assert message in str(run(root, *arguments).exception)
    assert "it has no parts" in str(run(tmp_path).exception)


def test_parts_that_are_left_out_are_named(tmp_path: Path) -> None:
    root = fleet_dataset.write(tmp_path, replace(FLEET, hosts=HOSTS[:2]))
    bad = root / Part("hours", "db2", HOSTS[1].id, BEGIN_S + HOUR_S).path
    bad.write_bytes(b"PAR1 and no more than that")
    (root / Part("rollups", "db2", HOSTS[1].id, BEGIN_S + HOUR_S).path).unlink()
    result = run(root, *DAY)
    assert f"left out: {bad.relative_to(root)}: it is truncated" in result.stderr
    assert "no rows of db2 for 1 hour, the first at 2026-11-01T01:00:00Z" in result.stderr
    assert "LEFT OUT  1 parts" in result.stdout and "MISSING" in result.stdout
    read = document(root, *DAY)["read"]
    assert len(read["refused"]) == 1
    assert read["missing_hours"] == [{"host": "db2", "hour": "2026-11-01T01:00:00Z"}]
