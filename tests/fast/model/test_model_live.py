# SPDX-License-Identifier: Apache-2.0
"""Live records to groups, windows and call statistics."""

from __future__ import annotations

import numpy as np
import pytest

from model_cases import energy, machine
from qjoule.contract import AGGREGATE, PACKAGE_TIME, SHAPE_OTHER, OwnerKind
from qjoule.engine.live import LiveCalls, from_aggregates
from qjoule.engine.live_groups import LiveGroups
from qjoule.engine.live_records import LiveNames, identities
from qjoule.live.package_times import UNKNOWN, PackageTimes
from qjoule.model import latency
from qjoule.model.arrays import EFFECTS, Anomalies
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


def test_a_package_is_active_as_long_as_the_kernel_says_and_its_cpus_allow() -> None:
    """If unknown: as long as possible. Siblings share what their core has of it."""
    rows = [
        {"owner_kind": OwnerKind.PROCESS, "cpu_ns": 10 * MS, "t0_ns": t_ms * MS}
        | {"t1_ns": (t_ms + 10) * MS}
        for t_ms in (0, 10, 20, 30)
    ]
    made = energy([n * 10 * MS for n in range(5)], {(0, "package"): [10**9] * 4})
    awake_ns = np.array([[7_500_000], [2 * MS], [11 * MS], [-1]])
    group = np.zeros(4, np.int64)
    batch = from_aggregates(records(*rows), group, made, machine(0, 0), awake_ns=awake_ns)
    assert batch.active_ns.ravel().tolist() == [7_500_000, 5 * MS, 10 * MS, 10 * MS]
    assert batch.entries.shared_ns.tolist() == [7_500_000, 5 * MS, 10 * MS, 10 * MS]


def test_siblings_share_the_time_of_their_core() -> None:
    """An owner that was always beside its sibling has half of what one with a core has."""
    found = records(
        {"owner_kind": OwnerKind.PROCESS, "cpu_ns": 8 * MS},
        {"owner_kind": OwnerKind.KERNEL, "cpu_ns": 4 * MS, "overlap_ns": 4 * MS},
        {"owner_kind": OwnerKind.TRACER, "cpu_ns": 4 * MS, "overlap_ns": 4 * MS},
    )
    made = energy([0, 10 * MS], {(0, "package"): [10**9]})
    batch = from_aggregates(
        found, np.arange(3), made, machine(0, 0, 0), awake_ns=np.array([[9 * MS]])
    )
    assert batch.entries.shared_ns.tolist() == [6 * MS, 1.5 * MS, 1.5 * MS]


def _times(*rows: tuple[int, int, int, int]) -> np.ndarray:
    """(t0, t1, awake in ms, package)"""
    out = np.zeros(len(rows), PACKAGE_TIME)
    for record, (t0_ms, t1_ms, awake_ms, package) in zip(out, rows, strict=True):
        record["t0_ns"], record["t1_ns"] = t0_ms * MS, t1_ms * MS
        record["awake_ns"], record["package"] = awake_ms * MS, package
    return out


def test_awake_times_belong_to_their_windows() -> None:
    times = PackageTimes(machine(0, 3))
    times.add(_times((0, 10, 4, 0), (0, 10, 5, 3), (0, 10, 5, 7), (10, 20, 6, 0), (20, 30, 30, 0)))
    assert times.take(np.array([0, 10, 20]) * MS).tolist() == [[4 * MS, 5 * MS], [6 * MS, UNKNOWN]]
    times.add(_times((30, 40, 0, 0), (30, 40, 2, 3)))
    later = times.take(np.array([20, 40]) * MS)
    assert later.tolist() == [[10 * MS, 4 * MS]], "no longer than the record; a share if one lacks"
    assert times.take(np.array([40, 50]) * MS).tolist() == [[UNKNOWN, UNKNOWN]]


def _effects(found: np.ndarray, awake_ms: float, *, cpus: int = 2) -> np.ndarray:
    made = energy([0, 10 * MS], {(0, "package"): [10**9]})
    group = np.arange(len(found))
    awake_ns = np.array([[round(awake_ms * MS)]])
    batch = from_aggregates(found, group, made, machine(*[0] * cpus), awake_ns=awake_ns)
    assert batch.entries.group.tolist() == group.tolist()
    return batch.entries.effects


def test_tails_and_wake_ups_are_the_columns_of_the_model() -> None:
    """Also of an owner that has nothing but a tail: it slept before the window began."""
    found = records(
        {"owner_kind": OwnerKind.PROCESS, "cpu_ns": MS, "package_wakes": 3, "core_wakes": 4},
        {"owner_kind": OwnerKind.KERNEL},
    )
    found["package_tail_ns"][0], found["core_tail_ns"][0] = np.arange(1, 6), np.arange(6, 11)
    found["core_tail_ns"][1] = 7
    effects = dict(zip(EFFECTS, _effects(found, 1).T.tolist(), strict=True))
    assert [effects[f"package_tail_{us}us"] for us in (100, 200, 400, 800, 1600)] == [
        [n, 0] for n in range(1, 6)
    ]
    assert [effects[f"core_tail_{us}us"] for us in (100, 200, 400, 800, 1600)] == [
        [n, 7] for n in range(6, 11)
    ]
    assert (effects["package_wakes"], effects["core_wakes"]) == ([3, 0], [4, 0])


def test_tails_are_cut_to_idle_time_and_wake_ups_to_what_it_allows() -> None:
    """As in the first window, whose sums began before it."""
    found = records(*({"owner_kind": kind, "cpu_ns": 4 * MS} for kind in (2, 3)))
    found["package_tail_ns"] = [3 * MS] * 5
    found["core_tail_ns"] = [[2 * MS] * 4 + [12 * MS]] * 2
    found["package_wakes"], found["core_wakes"] = 10_000, 9
    effects = _effects(found, 7)
    assert effects[:, 3:8].tolist() == [[1.5 * MS] * 5] * 2
    assert effects[:, 8:13].tolist() == [[MS] * 4 + [6 * MS]] * 2
    assert effects[:, 13:].tolist() == [[1501.0, 9.0]] * 2


def test_traffic_of_owners_that_run_in_turn_is_that_of_each() -> None:
    """8 misses per us against 1: below and above the limits of 5 and 20."""
    found = records(*({"owner_kind": kind, "cpu_ns": 4 * MS} for kind in (2, 3)))
    found["counters"][:, 2] = [32_000, 4_000]
    assert _effects(found, 8)[:, :3].tolist() == [[20_000, 32_000, 32_000], [4_000] * 3]


def test_traffic_of_owners_that_run_beside_each_other_is_the_mean() -> None:
    found = records(*({"owner_kind": kind, "cpu_ns": 4 * MS} for kind in (2, 3)))
    found["counters"][:, 2] = [32_000, 4_000]
    halves = np.full((2, 3), 9_000.0)  # 4.5 per us, in half of 4 ms each
    assert _effects(found, 4)[:, :3] == pytest.approx(halves)


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
