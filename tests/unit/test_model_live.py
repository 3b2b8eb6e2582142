# SPDX-License-Identifier: Apache-2.0
"""Live records to groups, windows and call statistics."""

from __future__ import annotations

import numpy as np
import pytest

from model_cases import energy, machine
from qjoule.contract import AGGREGATE, CPU_TIME, SHAPE_OTHER, OwnerKind
from qjoule.engine.live import LiveCalls, from_aggregates
from qjoule.engine.live_groups import LiveGroups, LiveNames, identities
from qjoule.live.cpu_busy import CpuBusy
from qjoule.model import latency
from qjoule.model.arrays import Anomalies
from qjoule.model.labels import SEVERAL

MS = 1_000_000
NAMES = LiveNames(
    lambda shape: (f"fp{shape // 10}", "select"),
    lambda server: f"db{server}",
    lambda tgid: f"process{tgid}",
    lambda pid: f"role-{pid}",
)


def records(*rows: dict[str, int]) -> np.ndarray:
    out = np.zeros(len(rows), AGGREGATE)
    for record, row in zip(out, rows, strict=True):
        record["t1_ns"] = 10 * MS
        for name, value in row.items():
            record[name] = value
    return out


def group(groups: LiveGroups, found: np.ndarray) -> list[int]:
    owners, which = identities(found)
    return [int(number) for number in groups.numbers(owners)[which]]


def test_groups_are_those_of_a_recorded_trace() -> None:
    groups = LiveGroups(NAMES)
    found = group(
        groups,
        records(
            {"owner_kind": OwnerKind.QUERY, "shape": 11, "server": 1},
            {"owner_kind": OwnerKind.QUERY, "shape": 12, "server": 1},
            {"owner_kind": OwnerKind.QUERY, "shape": 0, "server": 1},
            {"owner_kind": OwnerKind.QUERY, "shape": SHAPE_OTHER, "server": 1},
            {"owner_kind": OwnerKind.SERVER, "server": 2, "pid": 3},
            {"owner_kind": OwnerKind.PROCESS, "tgid": 4},
            {"owner_kind": OwnerKind.KERNEL},
            {"owner_kind": OwnerKind.TRACER, "tgid": 9},
        ),
    )
    labels = [groups.index.labels[g] for g in found]
    assert found[0] == found[1]  # two hashes of one fingerprint
    assert [label.kind for label in labels[2:]] == [
        *("queries", "queries", "background", "other_processes", "kernel", "tracer")
    ]
    assert dict(labels[2].keys)["fingerprint"] == "(prepared before tracing began)"
    assert not labels[2].named
    assert dict(labels[3].keys)["fingerprint"] == "other"
    assert dict(labels[4].keys) == {"server": "db2", "role": "role-?"}


def test_a_statement_of_two_servers_is_one_row_of_no_server_and_a_row_of_each() -> None:
    both = records(*({"owner_kind": OwnerKind.QUERY, "shape": 11, "server": n} for n in (1, 2)))
    groups = LiveGroups(NAMES)
    assert group(groups, both) == [0, 0]
    assert groups.index.labels[0].server == SEVERAL
    groups = LiveGroups(NAMES, "server")
    assert [dict(groups.index.labels[g].keys) for g in group(groups, both)] == [
        {"server": "db1"},
        {"server": "db2"},
    ]


def test_a_late_text_names_its_group_or_joins_it_to_the_one_of_its_fingerprint() -> None:
    texts = {1: ("fp", "select ?")}
    groups = LiveGroups(LiveNames(texts.get, str, str, str))
    late = records(*({"owner_kind": OwnerKind.QUERY, "shape": n, "server": 1} for n in (1, 2, 3)))
    assert group(groups, late) == [0, 1, 2]
    assert [label.named for label in groups.index.labels] == [True, False, False]
    texts[2], texts[3] = ("fp", "select ?"), ("new", "delete ?")
    assert groups.learn() == [(1, 0)]
    assert groups.learn() == []
    assert group(groups, late) == [0, 0, 2]
    label = groups.index.labels[2]
    assert (label.keys, label.shape, label.named) == ((("fingerprint", "new"),), "delete ?", True)


def test_sums_beyond_the_cpus_time_are_cut_and_counted() -> None:
    def row(number: int, cpu_ms: int) -> dict[str, int]:
        span = {"t0_ns": number * 10 * MS, "t1_ns": (number + 1) * 10 * MS}
        return {"owner_kind": OwnerKind.PROCESS, "cpu_ns": cpu_ms * MS, **span}

    found = records(row(0, 15), row(1, 10), row(1, 5), row(2, 4))
    made = energy([n * 10 * MS for n in range(4)], {(0, "package"): [10**9] * 3})
    for first, outside in ((0, 5 * MS), (7, 0)):
        anomalies = Anomalies()
        group = np.array([0, 0, 1, 1])
        batch = from_aggregates(found, group, made, machine(0), first=first, anomalies=anomalies)
        assert batch.idle_ns.tolist() == [[0], [0], [6 * MS]]
        assert batch.entries.cpu_ns.tolist() == [10 * MS, 6_666_667, 3_333_333, 4 * MS]
        assert (anomalies.outside_ns, anomalies.overlap_ns) == (outside, 10 * MS - outside)


def test_a_package_is_active_as_if_its_cpus_were_busy_independently() -> None:
    """Half a window on each of two CPUs: three quarters. If unknown: the maximum possible."""
    rows = [
        {"owner_kind": OwnerKind.PROCESS, "cpu_ns": cpu_ms * MS, "t0_ns": t_ms * MS}
        | {"t1_ns": (t_ms + 10) * MS}
        for t_ms, cpu_ms in ((0, 10), (10, 10), (20, 10))
    ]
    made = energy([n * 10 * MS for n in range(4)], {(0, "package"): [10**9] * 3})
    busy = np.array([[0.5, 0.5], [1.0, 0.0], [np.nan, 0.5]])
    group = np.zeros(3, np.int64)
    batch = from_aggregates(records(*rows), group, made, machine(0, 0), busy=busy)
    assert batch.active_ns.ravel().tolist() == [7_500_000, 10 * MS, 10 * MS]
    assert batch.entries.shared_ns.tolist() == [7_500_000, 10 * MS, 10 * MS]


def test_how_busy_cpus_were_is_known_between_their_records() -> None:
    books = CpuBusy(machine(0, 0))

    def at(t_ms: int, *busy_ms: int) -> np.ndarray:
        out = np.zeros(len(busy_ms), CPU_TIME)
        out["t_ns"], out["cpu"] = t_ms * MS, np.arange(len(busy_ms))
        out["busy_ns"] = np.array(busy_ms) * MS
        return out

    for t_ms, *busy_ms in ((5, 0, 0), (15, 10, 5), (25, 10, 5)):
        books.add(at(t_ms, *busy_ms))
    first = books.shares(np.array([0, 10, 20]) * MS)
    assert np.isnan(first[0]).all(), "before the first record"
    assert first[1].tolist() == [0.5, 0.25]
    books.add(at(35, 20, 5))
    later = books.shares(np.array([20, 30, 40]) * MS)
    assert later[0].tolist() == [0.5, 0.0]
    assert np.isnan(later[1]).all(), "no record after it yet"


def test_records_of_no_window_or_package_are_counted() -> None:
    found = records(
        {"owner_kind": OwnerKind.PROCESS, "cpu_ns": 7, "t0_ns": 40 * MS, "t1_ns": 50 * MS},
        {"owner_kind": OwnerKind.PROCESS, "cpu_ns": 7, "package": 9},
        {"owner_kind": OwnerKind.IDLE, "cpu_ns": MS},
    )
    anomalies = Anomalies()
    made = energy([0, 10 * MS], {(0, "package"): [10**9]})
    batch = from_aggregates(found, np.zeros(3, np.int64), made, machine(0), anomalies=anomalies)
    assert not len(batch.entries.cpu_ns)
    assert (anomalies.outside_ns, anomalies.unknown_cpu) == (7, 1)
    assert batch.idle_ns.tolist() == [[10 * MS]]


def test_calls_and_latencies_add_up_over_batches() -> None:
    calls = LiveCalls()
    for _ in range(2):
        one = records({"owner_kind": OwnerKind.QUERY, "calls": 10, "latency_ns": 10 * MS})
        one["latency"][0, 20] = 10
        calls.add(one, np.array([1]))
    stats = calls.stats(3)
    assert stats.calls.tolist() == [0, 20, 0]
    assert stats.latency_ns_mean[1] == MS
    low, high = latency.bucket_edges_ns()[20:22]
    assert (stats.latency_ns_quantiles[1] >= low).all()
    assert (stats.latency_ns_quantiles[1] <= high).all()
    assert np.isnan(stats.latency_ns_mean[0])


def test_exact_quantiles_are_latencies_that_happened() -> None:
    latencies = latency.Latencies()
    some = np.arange(1, 101) * 1000
    latencies.add(np.zeros(100, np.int64), some[::-1], np.ones(100, np.int64))
    stats = latencies.stats(2)
    assert stats.latency_ns_quantiles[0].tolist() == [50_000, 95_000, 99_000]
    assert stats.latency_ns_mean[0] == pytest.approx(50_500)
    assert np.isnan(stats.latency_ns_quantiles[1]).all()


def test_rounded_latencies_are_near_and_rounded_once() -> None:
    """Also where a latency converted to float is the next power of two."""
    latencies, some = latency.Latencies(), 2**62 - 1 - np.arange(latency.EXACT + 1)
    latencies.add(np.zeros(len(some), np.int64), some, np.ones(len(some), np.int64))
    before = latencies.stats(1).latency_ns_quantiles
    assert before[0].tolist() == pytest.approx([2**62] * 3, rel=2.0**-latency.DIGITS)
    assert latencies.stats(1).latency_ns_quantiles.tolist() == before.tolist()
