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
from qjoule.model.arrays import EFFECTS, Anomalies, Entries, Machine
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


def numbers(groups: LiveGroups, rows: np.ndarray) -> list[int]:
    """The group of each record."""
    owners, which = identities(rows)
    return [int(number) for number in groups.numbers(owners)[which]]


QUERY, PROCESS = {"owner_kind": OwnerKind.QUERY}, {"owner_kind": OwnerKind.PROCESS}


def test_groups_have_the_labels_of_a_recorded_trace() -> None:
    groups = LiveGroups(NAMES)
    rows = records(
        *(QUERY | {"shape": shape, "server": 1} for shape in (11, 12, 0, SHAPE_OTHER)),
        {"owner_kind": OwnerKind.SERVER, "server": 2, "pid": 3},
        PROCESS | {"tgid": 4},
        {"owner_kind": OwnerKind.KERNEL},
        {"owner_kind": OwnerKind.TRACER, "tgid": 9},
    )
    numbered = numbers(groups, rows)
    assert numbered[0] == numbered[1], "two hashes of one fingerprint"
    labels = [groups.index.labels[number] for number in numbered[1:]]
    assert [(label.kind, dict(label.keys)) for label in labels[:4]] == [
        ("queries", {"fingerprint": "fp1"}),
        ("queries", {"fingerprint": "(prepared before tracing began)"}),
        ("queries", {"fingerprint": "other"}),
        ("background", {"server": "db2", "role": "role-?"}),
    ]
    assert [label.named for label in labels[:2]] == [True, False]
    assert [label.kind for label in labels[4:]] == ["other_processes", "kernel", "tracer"]


@pytest.mark.parametrize(("by", "groups_of"), [("fingerprint", [0, 0]), ("server", [0, 1])])
def test_a_statement_of_two_servers_is_one_row_unless_grouped_by_server(
    by: str, groups_of: list[int]
) -> None:
    groups = LiveGroups(NAMES, by)
    assert (
        numbers(groups, records(*(QUERY | {"shape": 11, "server": n} for n in (1, 2)))) == groups_of
    )
    assert [label.server for label in groups.index.labels] == (
        [SEVERAL] if by == "fingerprint" else ["db1", "db2"]
    )


def test_a_late_text_names_its_group_or_joins_it_to_the_one_of_its_fingerprint() -> None:
    texts = {1: ("fp", "select ?")}
    groups = LiveGroups(LiveNames(texts.get, str, str, str))
    late = records(*(QUERY | {"shape": n, "server": 1} for n in (1, 2, 3)))
    assert numbers(groups, late) == [0, 1, 2]
    assert [label.named for label in groups.index.labels] == [True, False, False]
    texts[2], texts[3] = ("fp", "select ?"), ("new", "delete ?")
    assert groups.learn() == [(1, 0)]
    assert groups.learn() == []
    assert numbers(groups, late) == [0, 0, 2]
    label = groups.index.labels[2]
    assert (label.keys, label.shape, label.named) == ((("fingerprint", "new"),), "delete ?", True)


def one_window(rows: np.ndarray, awake_ms: float, cpus: Machine) -> Entries:
    """The entries of 10 ms in which the package was awake for `awake_ms`."""
    made = energy([0, 10 * MS], {(0, "package"): [10**9]})
    awake_ns = np.array([[round(awake_ms * MS)]])
    return from_aggregates(rows, np.arange(len(rows)), made, cpus, awake_ns=awake_ns).entries


@pytest.mark.parametrize(
    ("awake_ns", "active_ns"),
    [(7_500_000, 7_500_000), (2 * MS, 5 * MS), (11 * MS, 10 * MS), (-1, 10 * MS)],
)
def test_a_package_is_active_as_long_as_the_kernel_says_and_its_cpus_allow(
    awake_ns: int, active_ns: int
) -> None:
    """If unknown: as long as possible."""
    entries = one_window(records(PROCESS | {"cpu_ns": 10 * MS}), awake_ns / MS, machine(0, 0))
    assert entries.shared_ns.tolist() == [active_ns]


def test_awake_times_belong_to_their_windows() -> None:
    def add(*rows: tuple[int, int, int, int]) -> None:
        """(t0, t1, awake in ms, package)"""
        out = np.zeros(len(rows), PACKAGE_TIME)
        for record, (t0_ms, t1_ms, awake_ms, package) in zip(out, rows, strict=True):
            record["t0_ns"], record["t1_ns"] = t0_ms * MS, t1_ms * MS
            record["awake_ns"], record["package"] = awake_ms * MS, package
        times.add(out)

    times = PackageTimes(machine(0, 3))
    add((0, 10, 4, 0), (0, 10, 5, 3), (0, 10, 5, 7), (10, 20, 6, 0), (20, 30, 30, 0))
    assert times.take(np.array([0, 10, 20]) * MS).tolist() == [[4 * MS, 5 * MS], [6 * MS, UNKNOWN]]
    add((30, 40, 0, 0), (30, 40, 2, 3))
    later = times.take(np.array([20, 40]) * MS)
    assert later.tolist() == [[10 * MS, 4 * MS]], "no longer than the record; a share if one lacks"
    assert times.take(np.array([40, 50]) * MS).tolist() == [[UNKNOWN, UNKNOWN]]


def test_tails_and_wake_ups_are_the_columns_of_the_model() -> None:
    """Also of an owner that has nothing but a tail: it slept before the window began."""
    rows = records(
        PROCESS | {"cpu_ns": MS, "package_wakes": 3, "core_wakes": 4},
        {"owner_kind": OwnerKind.KERNEL},
    )
    rows["package_tail_ns"][0], rows["core_tail_ns"][0] = np.arange(1, 6), np.arange(6, 11)
    rows["core_tail_ns"][1] = 7
    entries = one_window(rows, 1, machine(0, 0))
    assert entries.group.tolist() == [0, 1]
    assert entries.effects[:, 3:].tolist() == [
        [*range(1, 6), *range(6, 11), 3, 4],
        [0] * 5 + [7] * 5 + [0, 0],
    ]
    assert EFFECTS[3] == "package_tail_100us"
    assert EFFECTS[8] == "core_tail_100us"
    assert EFFECTS[13:] == ("package_wakes", "core_wakes")


@pytest.fixture
def two_owners() -> np.ndarray:
    """Each ran for 4 ms, with 8 misses per us and with 1: above and below the limits."""
    rows = records(*({"owner_kind": kind, "cpu_ns": 4 * MS} for kind in (2, 3)))
    rows["counters"][:, 2] = [32_000, 4_000]
    return rows


def test_tails_are_cut_to_idle_time_and_wake_ups_to_what_it_allows(two_owners: np.ndarray) -> None:
    """As in the first window, whose sums began before it."""
    two_owners["package_tail_ns"] = [3 * MS] * 5
    two_owners["core_tail_ns"] = [[2 * MS] * 4 + [12 * MS]] * 2
    two_owners["package_wakes"], two_owners["core_wakes"] = 10_000, 9
    effects = one_window(two_owners, 7, machine(0, 0)).effects
    expected = [1.5 * MS] * 5 + [MS] * 4 + [6 * MS, 1501.0, 9.0]
    assert effects[:, 3:].tolist() == [expected] * 2


def test_traffic_is_that_of_each_owner_in_turn_and_the_mean_of_owners_side_by_side(
    two_owners: np.ndarray,
) -> None:
    in_turn = one_window(two_owners, 8, machine(0, 0)).effects[:, :3]
    assert in_turn.tolist() == [[20_000, 32_000, 32_000], [4_000] * 3]
    beside = one_window(two_owners, 4, machine(0, 0)).effects[:, :3]
    assert beside == pytest.approx(np.full((2, 3), 9_000.0))  # 4.5 per us, in half of 4 ms each


def test_calls_and_latencies_add_up_over_batches() -> None:
    calls = LiveCalls()
    for _ in range(2):
        row = records(QUERY | {"calls": 10, "latency_ns": 10 * MS})
        row["latency"][0, 20] = 10
        calls.add(row, np.array([1]))
    stats = calls.stats(3)
    assert stats.calls.tolist() == [0, 20, 0]
    assert stats.latency_ns_mean[1] == MS
    low, high = latency.bucket_edges_ns()[20:22]
    assert (stats.latency_ns_quantiles[1] >= low).all()
    assert (stats.latency_ns_quantiles[1] <= high).all()
    assert np.isnan(stats.latency_ns_mean[0])


def test_sums_beyond_the_cpus_time_are_cut_and_records_of_no_window_are_counted() -> None:
    def row(number: int, cpu_ms: int, **other: int) -> dict[str, int]:
        span = {"t0_ns": number * 10 * MS, "t1_ns": (number + 1) * 10 * MS}
        return PROCESS | {"cpu_ns": cpu_ms * MS} | span | other

    rows = records(
        *(row(0, 15), row(1, 10), row(1, 5), row(2, 4), row(9, 7), row(0, 7, package=9)),
        row(0, 1, owner_kind=OwnerKind.IDLE),
    )
    made = energy([n * 10 * MS for n in range(4)], {(0, "package"): [10**9] * 3})
    group = np.array([0, 0, 1, 1, 0, 0, 0])
    for first, outside in ((0, 5 * MS), (7, 0)):  # in window 0 the excess ran before tracing began
        anomalies = Anomalies()
        batch = from_aggregates(rows, group, made, machine(0), first=first, anomalies=anomalies)
        assert batch.idle_ns.tolist() == [[0], [0], [6 * MS]]
        assert batch.entries.cpu_ns.tolist() == [10 * MS, 6_666_667, 3_333_333, 4 * MS]
        lost = (anomalies.outside_ns, anomalies.overlap_ns, anomalies.unknown_cpu)
        assert lost == (outside + 7 * MS, 10 * MS - outside, 1)
