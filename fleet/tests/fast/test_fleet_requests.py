# SPDX-License-Identifier: Apache-2.0
"""What one request costs over the servers of several hosts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import attribute_trace
from attribute_trace import BEGIN_NS, MS
from qjoule.engine.attribute import AttributionRequest, attribute
from qjoule.errors import QjouleError
from qjoule.trace.meta import DomainInfo, EnergyInfo, Server
from qjoule.trace.reader import Trace
from qjoule_fleet.commands import fleet_requests
from qjoule_fleet.reporters.requests import render, to_json
from qjoule_fleet.requests import join
from qjoule_fleet.requests.run import Answer, Query, Source, answer

#: When the hosts' recordings began, in ms since 1970.
EPOCH_MS = 1_700_000_000_000
LONGEST_NS = 2_000 * MS


@dataclass(frozen=True)
class Call:
    """A query from `begin` to `end`, in ms of true time since the recordings began."""

    id: str | None
    begin: float
    end: float
    span: str | None = None
    client: bool = False


def write(
    directory: Path, host: str, calls: Sequence[Call], ahead_ms: float = 0.0, **meta: Any
) -> Path:
    """A trace of 4 s in windows of 20 ms, at 1 J each. Its clock is `ahead_ms`."""
    count = 200
    queries, segments = [], []
    for number, call in enumerate(calls, 1):
        tags = {"trace": call.id, "span": call.span}
        extra = {"tags": [(key, value) for key, value in tags.items() if value]}
        row = attribute_trace.query(call.begin, call.end, number, "aaaa", "query", extra)
        if call.client:
            row |= {"query": 2**63 + number, "attach_mode": "tag", "server": None}
        else:
            segments.append(attribute_trace.segment(call.begin, call.end, 0, 1, number))
        queries.append(row)
    fields = {
        "host": host,
        "begin_ns": BEGIN_NS,
        "end_ns": BEGIN_NS + 20 * count * MS,
        # Each host's monotonic clock is its own; what counts is the sum.
        "realtime_offset_ns": round((EPOCH_MS + ahead_ms) * MS) - BEGIN_NS,
        "servers": (Server(1, f"{host}-db", "mysql", attach_mode="socket"),),
    }
    return attribute_trace.write(
        directory,
        meta=fields | meta,
        queries=queries,
        segments=sorted(segments, key=lambda row: row["t0_ns"]),
        energy=[attribute_trace.energy(20 * k, k * 10**9) for k in range(count + 1)],
    )


MEASURED = EnergyInfo("powercap", "measured", "a test")


def answer_for(paths: Sequence[Path], **wanted: Any) -> Answer:
    """The answer for some traces."""
    sources = [Source(path.name, Trace(path), AttributionRequest()) for path in paths]
    options: dict[str, Any] = {"tag": "trace", "top": 100, "longest_ns": LONGEST_NS} | wanted
    return answer(sources, Query(**options))


HOUR_MS = 3_600_000.0
#: Requests at 100, 300, ... ms; each asks db1 and then db2.
IDS = [f"r{number}" for number in range(8)]
ONE = [Call(request_id, 100 + 200 * n, 120 + 200 * n) for n, request_id in enumerate(IDS)]
TWO = [Call(request_id, 125 + 200 * n, 155 + 200 * n) for n, request_id in enumerate(IDS)]


def two_hosts(tmp_path: Path, ahead_ms: float = 0.0) -> list[Path]:
    return [
        write(tmp_path / "a", "db1", [*ONE, Call(None, 3000, 3010)]),
        write(tmp_path / "b", "db2", TWO, ahead_ms),
    ]


def by_id(answer: Answer) -> dict[str, join.Request]:
    assert len({row.id for row in answer.rows}) == len(answer.rows)
    return {row.id: row for row in answer.rows}


def test_a_request_is_the_sum_of_what_its_servers_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = two_hosts(tmp_path)
    answer = answer_for(paths)
    monkeypatch.setattr("qjoule_fleet.requests.run.BUCKET_ROWS", 2)
    assert to_json(answer_for(paths)) == to_json(answer)
    expected = dict.fromkeys(IDS, 0)
    for path in paths:
        for row in attribute(Trace(path), ("tag:trace", "server")).rows:
            if row.keys["tag:trace"] in expected:
                expected[row.keys["tag:trace"]] += row.energy_nj
    rows = by_id(answer)
    assert {name: request.energy_nj for name, request in rows.items()} == expected
    for request in rows.values():
        assert request.hosts == ("db1", "db2")
        assert (request.calls, request.cpu_ns) == (2, 50 * MS)
        low, high = request.ends_nj
        assert 0 <= low <= request.energy_nj <= high
        assert sum(part.energy_nj for part in request.parts) == request.energy_nj
        assert (request.end_ns or 0) - (request.begin_ns or 0) == pytest.approx(55 * MS, abs=2e9)
        assert not request.flags
    totals = answer.totals["simulated", "separate"]
    assert (totals.requests, totals.several_hosts) == (8, 8)
    tagged = sum(trace.tagged_nj or 0 for trace in answer.traces)
    assert totals.energy_nj == tagged == sum(expected.values())
    assert answer.traces[0].untagged_nj


def test_requests_tell_how_far_clocks_are_apart(tmp_path: Path) -> None:
    ahead_ms = -3 * HOUR_MS
    answer = answer_for(two_hosts(tmp_path, ahead_ms))
    assert answer.reference == "db1"
    clock = answer.clocks["db2"]
    assert clock.bounded
    assert (clock.by, clock.shared, clock.agree) == ("requests", 8, 8)
    assert clock.low_ns <= ahead_ms * MS <= clock.high_ns
    assert clock.high_ns - clock.low_ns < 2 * LONGEST_NS
    assert all(not row.flags and len(row.hosts) == 2 for row in answer.rows)


def test_calls_of_a_client_tell_it_more_closely(tmp_path: Path) -> None:
    calls = [
        Call(request_id, 90 + 200 * n, 160 + 200 * n, f"s{n}", client=True)
        for n, request_id in enumerate(IDS)
    ]
    queries = [Call(c.id, c.begin + 10, c.end - 10, c.span) for c in calls]
    paths = [
        write(tmp_path / "app", "app", calls),
        write(tmp_path / "db", "db", queries, 5000.0),
    ]
    answer = answer_for(paths)
    clock = answer.clocks["db"]
    assert clock.by == "calls"
    assert (clock.low_ns, clock.high_ns) == (4990 * MS, 5010 * MS)
    assert all(not row.flags for row in answer.rows)


def test_a_host_without_shared_requests_is_known_through_another_one(tmp_path: Path) -> None:
    """The reference, which shares most requests, is between the two in order of name."""
    others = [Call(f"y{n}", 200 + 10 * n, 205 + 10 * n) for n in range(3)]
    more = [Call(f"z{n}", 300 + 10 * n, 305 + 10 * n) for n in range(2)]
    paths = [
        write(tmp_path / "a", "db1", ONE, 500.0),
        write(tmp_path / "b", "db2", [*TWO, *others], 1000.0),
        write(tmp_path / "c", "db3", [*others, *more], -2000.0),
        write(tmp_path / "d", "db4", more, 9000.0),
    ]
    answer = answer_for(paths, longest_ns=100 * MS)
    assert answer.reference == "db2"
    ahead_ms = {"db1": -500, "db2": 0, "db3": -3000, "db4": 8000}
    for host, ms in ahead_ms.items():
        clock = answer.clocks[host]
        assert clock.bounded and clock.low_ns <= ms * MS <= clock.high_ns
    assert [answer.clocks[host].through for host in ahead_ms] == ["", "", "", "db3"]


def test_the_same_ids_on_unrelated_hosts_are_not_one_request(tmp_path: Path) -> None:
    """Clocks are known from other requests; r0 was used again much later."""
    later = [*TWO[1:], Call("r0", 3900, 3910)]
    paths = [
        write(tmp_path / "a", "db1", ONE),
        write(tmp_path / "b", "db2", later),
    ]
    answer = answer_for(paths, longest_ns=500 * MS)
    uses = [row for row in answer.rows if row.id == "r0"]
    assert [row.hosts for row in sorted(uses, key=lambda row: row.hosts)] == [("db1",), ("db2",)]
    assert all(row.flags == (join.REUSED,) for row in uses)
    assert all(not row.flags for row in answer.rows if row.id != "r0")
    assert answer.clocks["db2"].agree == 7


@pytest.mark.parametrize(
    ("other", "shared"),
    [
        # Counters as ids: both hosts begin at 1, and nothing belongs together.
        ([Call(request_id, 3500 - 450 * n, 3510 - 450 * n) for n, request_id in enumerate(IDS)], 8),
        ([Call("z", 10, 20)], 0),
    ],
)
def test_clocks_are_unknown_where_requests_disagree_or_none_is_shared(
    tmp_path: Path, other: list[Call], shared: int
) -> None:
    paths = [
        write(tmp_path / "a", "db1", ONE),
        write(tmp_path / "b", "db2", other),
    ]
    answer = answer_for(paths, longest_ns=100 * MS)
    assert not answer.clocks["db2"].bounded and answer.clocks["db2"].shared == shared
    assert all((join.CLOCK in row.flags) == bool(shared) for row in answer.rows)
    assert ("unknown" if shared else "no shared requests") in render(answer)
    assert json.loads(to_json(answer))["clocks"]["db2"]["ahead_ns"] is None


def test_grades_are_never_added(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / "a", "db1", ONE),
        write(tmp_path / "b", "db2", TWO, energy=MEASURED),
    ]
    answer = answer_for(paths)
    assert {grade for grade, _ in answer.totals} == {"measured", "simulated"}
    assert len(answer.rows) == 16
    assert all(row.flags == (join.GRADES,) and len(row.hosts) == 1 for row in answer.rows)
    assert "not added up" in render(answer)


def test_rows_lack_the_error_of_the_total_unless_traces_differ(tmp_path: Path) -> None:
    def estimated(name: str, error: float) -> Path:
        domains = (DomainInfo(0, "package", 1e-9, error=error),)
        energy = EnergyInfo("estimated", "estimated", "")
        return write(tmp_path / name, name, ONE, energy=energy, domains=domains)

    first, alike, other = estimated("a", 0.4), estimated("b", 0.4), estimated("c", 0.9)
    for paths, absolute in (
        ([first, alike], False),
        ([first, alike], True),
        ([first, other], False),
    ):
        answer = answer_for(paths, absolute=absolute)
        (total,), row = json.loads(to_json(answer))["totals"], answer.rows[0]
        assert total["total_error"] == (0.9 if other in paths else 0.4)
        assert f"estimated ±{100 * total['total_error']:.0f} %" in render(answer)
        assert total["error_in_rows"] == row.total.in_rows == (absolute or other in paths)
        assert bool(answer.notes) == (other in paths)
        assert (row.ends_nj[1] > 1.4 * row.energy_nj) == row.total.in_rows


def test_traces_without_tags_or_clock_and_calls_without_a_server_are_named(tmp_path: Path) -> None:
    untagged = write(tmp_path / "c", "db3", [Call(None, 10, 20)])
    paths = [
        *two_hosts(tmp_path),
        untagged,
        write(tmp_path / "d", "db4", [Call("r0", 10, 20)], realtime_offset_ns=None),
    ]
    answer = answer_for(paths)
    notes = {trace.name: trace.notes for trace in answer.traces}
    assert notes["c"] == ("no query has the tag 'trace'",)
    assert notes["d"] == ("its clock's offset from 1970 is unknown",)
    assert by_id(answer)["r0"].flags == (join.CLOCK,)
    assert "c: no query has the tag 'trace'" in render(answer)
    with pytest.raises(QjouleError, match="no query has the tag 'order'"):
        answer_for([untagged], tag="order")
    calls = [*ONE, Call("r0", 101, 119, "s0", client=True)]
    answer = answer_for([write(tmp_path / "e", "db1", calls)])
    assert by_id(answer)["r0"].flags == (join.MISSING,)


def test_the_command_writes_a_table_json_and_all_requests(tmp_path: Path) -> None:
    paths = [str(path) for path in two_hosts(tmp_path)]
    shown = CliRunner().invoke(fleet_requests.command, [*paths, "--top", "3"])
    assert shown.exit_code == 0, shown.exception
    assert "5 more requests" in shown.stdout
    assert "Clocks, relative to db1" in shown.stdout
    file = tmp_path / "all.parquet"
    arguments = [*paths, "--format", "json", "-o", str(file), "--top", "3"]
    done = CliRunner().invoke(fleet_requests.command, arguments)
    answer = json.loads(done.stdout)
    assert (answer["schema"], len(answer["rows"])) == ("qjoule.requests/1", 3)
    assert answer["totals"][0]["requests"] == 8
    rows = pq.read_table(file).to_pylist()
    assert sorted(row["id"] for row in rows) == IDS
    assert sum(row["energy_nj"] for row in rows) / 10**9 == answer["totals"][0]["energy_j"]
    assert not list(tmp_path.glob(".*"))
