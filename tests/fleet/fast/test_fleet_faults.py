# SPDX-License-Identifier: Apache-2.0
"""A fleet in which every host has another fault: what is sound counts once, all else is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.fleet import faults, parts
from bench.fleet.faults import OTHER_ID, Fault
from bench.fleet.population import Fleet, Plan, draw

from qjoule.fleet.asked import InProcess, Question, Reader
from qjoule.fleet.files import dataset
from qjoule.fleet.questions import parse_by
from qjoule.fleet.relations import Limits
from qjoule.fleet.times import Range
from qjoule.fleet.top import Top, top
from qjoule.trace.arrow import pq

HOURS = 3
#: Of these hosts the last hour is refused.
WITHOUT_LAST = ("newer_major", "truncated", "liar")


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return draw(Plan(hosts=len(faults.KINDS), shapes=3, seed=9, calls_per_s=1.0))


@pytest.fixture(scope="module")
def root(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("faults") / "dataset"
    parts.write(where, fleet, parts.Wanted(hours=HOURS))
    return where


@pytest.fixture(scope="module")
def found(root: Path, fleet: Fleet) -> dict[str, Fault]:
    return {one.kind: one for one in faults.apply(root, fleet.hosts.names)}


@pytest.fixture(scope="module")
def answer(root: Path, fleet: Fleet, found: dict[str, Fault]) -> Top:
    assert found
    return _ask(root, fleet)


def _ask(root: Path, fleet: Fleet) -> Top:
    begin_s = fleet.plan.begin_s
    asked = Range(begin_s, begin_s + 3600 * HOURS)
    reader = Reader(dataset(str(root)), Limits(memory_mb=200, threads=1), InProcess())
    return top(reader, asked, Question(parse_by("host"), limit=None, latency=False))


def _energies(answer: Top) -> dict[str, int]:
    """By host, over its grades."""
    sums: dict[str, int] = {}
    for row in answer.rows:
        sums[row.keys["host"]] = sums.get(row.keys["host"], 0) + row.energy_nj
    return sums


def _true_sums(root: Path, host: str, left_out: tuple[int, ...] = ()) -> int:
    """What a host's rows say in the hours (of the plan) that are not left out."""
    rows = pq.ParquetFile(parts.truth_path(root)).read().to_pylist()
    mine = [row for row in rows if row["host"] == host]
    first = min(row["hour_s"] for row in mine)
    return sum(row["energy_nj"] for row in mine if (row["hour_s"] - first) // 3600 not in left_out)


def test_each_host_counts_as_far_as_its_parts_are_sound(
    root: Path, found: dict[str, Fault], answer: Top
) -> None:
    energies = _energies(answer)
    for kind, fault in found.items():
        left_out = {"missing_parts": (0,), "late": (1, 2)}.get(kind, ())
        left_out = (HOURS - 1,) if kind in WITHOUT_LAST else left_out
        if kind != "same_name":
            assert energies[fault.host] == _true_sums(root, fault.host, left_out), kind


def test_what_is_refused_is_named(found: dict[str, Fault], answer: Top) -> None:
    refused = {one.path for one in answer.read.refused}
    for fault in found.values():
        # A copy below another date is not of the asked time, so nobody looks at it.
        due = {path for path in fault.refused if "date=2031" not in path}
        assert due <= refused, fault.kind
    others = {one for one in refused if not any(one in fault.refused for fault in found.values())}
    assert not any(path.startswith("hours/") for path in others)


def test_two_hosts_with_one_name_are_told_apart(
    root: Path, fleet: Fleet, found: dict[str, Fault], answer: Top
) -> None:
    name = found["same_name"].host
    own = fleet.hosts.host_ids[fleet.hosts.names.index(name)]
    shown = {host: nj for host, nj in _energies(answer).items() if host.startswith(name)}
    assert len(shown) == 2
    assert all("#" in host for host in shown)
    assert {own.startswith(host.split("#")[1]) for host in shown} == {True, False}
    assert any(OTHER_ID.startswith(host.split("#")[1]) for host in shown)
    assert set(shown.values()) == {_true_sums(root, name)}


def test_an_unknown_grade_has_a_row_of_its_own(found: dict[str, Fault], answer: Top) -> None:
    mine = [row for row in answer.rows if row.keys["host"] == found["wrong_grade"].host]
    assert len(mine) == 2
    assert "perfect" in {row.grade for row in mine}


def test_late_parts_count_when_they_arrive(
    root: Path, fleet: Fleet, found: dict[str, Fault], answer: Top
) -> None:
    fault = found["late"]
    assert [host for host, _ in answer.read.missing].count(fault.host) == 2
    faults.deliver(root, fault)
    assert _energies(_ask(root, fleet))[fault.host] == _true_sums(root, fault.host)
