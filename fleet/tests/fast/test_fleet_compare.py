# SPDX-License-Identifier: Apache-2.0
"""`qjoule fleet compare`: deploys, releases, and hosts that differ."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fleet_dataset
from cli_runner import invoke, printed_json
from fleet_dataset import Fleet, Host
from qjoule_fleet.commands.fleet import command
from qjoule_fleet.outliers import FALSE_SHARE, outliers
from qjoule_fleet.top import Row

LIMITS = ("--memory", 200, "--threads", 1)
AT = ("--at", "2026-11-01T02:00Z", "--span", "2h", *LIMITS)
SPAN = ("--from", "2026-11-01T00:00Z", "--last", "4h", *LIMITS)
COSTLY = fleet_dataset.fingerprint(1)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten hosts, of which one has a costly shape 2; after two hours, shape 1 costs 30 % more, and
    each call waits 4 µs longer for a lock."""
    path = tmp_path_factory.mktemp("fleet")
    hosts = [Host(f"db{i}", hours=(0, 1), factors={2: 1.8} if i == 3 else {}) for i in range(10)]
    hosts += [Host(f"vm{i}", hours=(0, 1), grade="estimated", factor=3.0) for i in range(2)]
    fleet_dataset.write(path, Fleet(hosts, 3, (0, 20, 40)))
    after = [replace(host, hours=(2, 3), factors={**host.factors, 1: 1.3}) for host in hosts]
    fleet_dataset.write(path, Fleet(after, 3, (0, 20, 40), seed=2, locked_ns=4_000))
    states = [(0, "10.11.6"), (2, "11.4.2")]
    for host in hosts[:9]:
        fleet_dataset.put_slow(path, host, 3, states=states)
    return path


run = partial(invoke, command, "compare", standalone_mode=False)
document = partial(printed_json, command, "compare", "--json")


def by_name(class_: Any) -> dict[str, Any]:
    return {row["base"]["name"]: row for row in class_["rows"]}


def test_a_deploy_is_compared_host_by_host_and_grade_by_grade(root: Path) -> None:
    printed = document(root, *AT)
    assert [class_["grade"]["base"] for class_ in printed["classes"]] == ["estimated", "measured"]
    rows = by_name(printed["classes"][1])
    low, high = rows[COSTLY]["greenup_ci95"]
    assert low < 1 / 1.3 < high < 0.85
    assert rows[COSTLY]["energy_differs"] is True
    assert [row["energy_differs"] for name, row in rows.items() if name != COSTLY] == [None] * 2
    assert rows[COSTLY]["runs"] == [10, 10]


def test_the_part_of_the_latency_that_changed_most_is_named(root: Path) -> None:
    rows = by_name(document(root, *AT)["classes"][1])
    assert rows[COSTLY]["latency_change"] == {
        "part": "wait_lock_ns",
        "ns_per_call": pytest.approx(4_000),
    }
    assert rows[COSTLY]["base"]["latency_parts_ns"]["ran_ns"] == pytest.approx(83_593)
    not_recorded = rows[fleet_dataset.fingerprint(0)]
    assert "latency_change" not in not_recorded and "latency_parts_ns" not in not_recorded["new"]
    text = run(root, *AT).output
    assert text.count("latency: mostly lock") == 2 * 2, "of two statements, for each grade"


def test_a_gate_that_is_not_held_is_exit_code_1(root: Path) -> None:
    failed = run(root, *AT, "--gate", "J/call <= 1.05")
    assert failed.return_value == 1 and "regressed" in failed.output
    assert run(root, *AT, "--gate", "latency <= 1.05").return_value == 0


def test_releases_are_compared_on_the_hosts_that_had_both(root: Path) -> None:
    printed = document(root, *SPAN, "--release", "mysql 10.11.6", "mysql 11.4.2")
    measured = printed["classes"][-1]
    assert len(measured["runs"]["base"]) == 9
    assert any("hosts with one side only" in note and "db9" in note for note in measured["notes"])
    assert by_name(measured)[COSTLY]["energy_differs"] is True


def test_releases_on_different_hosts_are_compared_with_all_errors(tmp_path: Path) -> None:
    hosts = [Host(f"db{i}") for i in range(6)]
    path = fleet_dataset.write(tmp_path, Fleet(hosts, 2, (0, 30)))
    for i, host in enumerate(hosts):
        fleet_dataset.put_slow(path, host, 2, states=[(0, "10" if i % 2 else "11")])
    (class_,) = document(path, *SPAN, "--release", "mysql 10", "mysql 11")["classes"]
    assert class_["runs"] == {"base": ["db1", "db3", "db5"], "new": ["db0", "db2", "db4"]}
    low, high = class_["rows"][0]["greenup_ci95"]
    assert low < 1 < high and high / low > 1.1, "the model's errors do not cancel"


def test_a_host_that_differs_is_found(root: Path) -> None:
    printed = document(root, *SPAN, "--hosts")
    (row,) = printed["rows"]
    assert (row["host"], row["fingerprint"]) == ("db3", fleet_dataset.fingerprint(2))
    low, high = row["ratio_ci95"]
    assert low < 1.8 < high
    assert printed["tested"] == 30 and printed["not_tested"] == 6, "two estimated hosts are too few"
    text = run(root, *SPAN, "--hosts").output
    assert "1 of 30 shapes on hosts differ" in text and "6 could not be compared" in text


def drawn(random: np.random.Generator, hosts: int, odd: float) -> list[Row]:
    """10 shapes whose joules vary by 5 % between hosts and 3 % by error; `odd`: host 0's ratio."""
    rows = []
    for shape in range(10):
        base = 1e9 * random.lognormal()
        for host in range(hosts):
            mean = base * np.exp(0.05 * random.standard_normal() + 0.03 * random.standard_normal())
            energy = mean * (odd if host == 0 else 1)
            ends = (energy * np.exp(-0.06), energy * np.exp(0.06))
            keys = {"host": str(host), "fingerprint": str(shape)}
            rows.append(
                Row(keys, "measured", "", int(energy), ends, None, 100, 1, None, None, None, 1, 1)
            )
    return rows


def test_hosts_that_are_alike_are_seldom_told_apart_and_odd_ones_are() -> None:
    false = hits = 0
    for seed in range(60):
        false += bool(outliers(drawn(np.random.default_rng(seed), 20, 1.0), 1.0).outliers)
    for seed in range(20):
        odd = outliers(drawn(np.random.default_rng(seed), 20, 1.5)).outliers
        hits += sum(outlier.row.keys["host"] == "0" for outlier in odd)
    assert false / 60 <= 2.5 * FALSE_SHARE
    assert hits / 200 > 0.7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give one of --at TIME, --release A B, or --hosts"),
        (("--at", "2026-11-01", "--last", "1h"), "--at has --span"),
        (("--at", "2999-01-01"), "that is not over yet"),
        (
            (*SPAN, "--release", "mysql 10.11.6", "mysql 9"),
            "no rows of release 'mysql 9'; there are: mysql 10.11.6, mysql 11.4.2",
        ),
    ],
)
def test_wrong_arguments_are_named(root: Path, arguments: tuple[object, ...], message: str) -> None:
    assert message in str(run(root, *arguments, *LIMITS).exception)
