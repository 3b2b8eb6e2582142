# SPDX-License-Identifier: Apache-2.0
"""Live records to groups, windows and call statistics."""

from __future__ import annotations

import io
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import fake_tracer
from model_cases import energy, machine
from qjoule.contract import AGGREGATE, SHAPE_OTHER, OwnerKind
from qjoule.engine.attribute import attribute
from qjoule.engine.live import from_aggregates
from qjoule.engine.live_groups import PER_SERVER, LiveGroups
from qjoule.engine.live_owners import LiveNames, identities
from qjoule.live.options import LiveOptions
from qjoule.live.sources import StreamSource
from qjoule.metrics.interval import Query, Shape, interval_of
from qjoule.model.account import Account
from qjoule.model.arrays import Anomalies, Entries, Machine, WindowBatch
from qjoule.model.power_model import PowerModel
from qjoule.snapshots import Controls
from qjoule.stream.blocks import Stream
from qjoule.stream.record import record
from qjoule.trace.meta import Meta, Server
from qjoule.trace.reader import Trace
from qjoule.trace.writer import TraceWriter
from two_packages import SERVER, TwoPackages

MS = 1_000_000
NAMES = LiveNames(
    lambda shape: (f"fp{shape // 10}", "select"),
    lambda server: f"db{server}",
    lambda tgid: f"process{tgid}",
    lambda pid: f"role-{pid}",
)


def records(*rows: dict[str, int]) -> np.ndarray:
    out = np.zeros(len(rows), AGGREGATE)
    for record_, row in zip(out, rows, strict=True):
        record_["t1_ns"] = 10 * MS
        for name, value in row.items():
            record_[name] = value
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
        ("queries", {"fingerprint": "(text lost)"}),
        ("queries", {"fingerprint": "other"}),
        ("background", {"server": "db2", "role": "role-?"}),
    ]
    assert [label.named for label in labels[:2]] == [True, False]
    assert [label.kind for label in labels[4:]] == ["other_processes", "kernel", "tracer"]


def test_a_late_text_names_its_group_or_joins_it_to_the_one_of_its_fingerprint() -> None:
    texts = {1: ("fp", "select ?")}
    groups = LiveGroups(LiveNames(texts.get, str, str, str))
    late = records(*(QUERY | {"shape": n, "server": 1} for n in (1, 2, 3)))
    assert numbers(groups, late) == [0, 1, 2]
    assert [label.named for label in groups.index.labels] == [True, False, False]
    texts[2], texts[3] = ("fp", "select ?"), ("new", "delete ?")
    assert groups.resolve_pending_names() == [(1, 0)]
    assert groups.resolve_pending_names() == []
    assert numbers(groups, late) == [0, 0, 2]
    label = groups.index.labels[2]
    assert (label.keys, label.shape, label.named) == ((("fingerprint", "new"),), "delete ?", True)


def one_window(rows: np.ndarray, awake_ms: float, cpus: Machine) -> Entries:
    """The entries of 10 ms in which the package was awake for `awake_ms`."""
    energies = energy([0, 10 * MS], {(0, "package"): [10**9]})
    awake_ns = np.array([[round(awake_ms * MS)]])
    return from_aggregates(rows, np.arange(len(rows)), energies, cpus, awake_ns=awake_ns).entries


@pytest.fixture
def two_owners() -> np.ndarray:
    """Each ran for 4 ms, with 8 misses per us and with 1: above and below the limits."""
    rows = records(*({"owner_kind": kind, "cpu_ns": 4 * MS} for kind in (2, 3)))
    rows["counters"][:, 2] = [32_000, 4_000]
    return rows


def test_traffic_is_that_of_each_owner_in_turn_and_the_mean_of_owners_side_by_side(
    two_owners: np.ndarray,
) -> None:
    in_turn = one_window(two_owners, 8, machine(0, 0)).effects[:, :3]
    assert in_turn.tolist() == [[20_000, 32_000, 32_000], [4_000] * 3]
    beside = one_window(two_owners, 4, machine(0, 0)).effects[:, :3]
    assert beside == pytest.approx(np.full((2, 3), 9_000.0))  # 4.5 per us, in half of 4 ms each


def test_sums_beyond_the_cpus_time_are_cut_and_records_of_no_window_are_counted() -> None:
    def row(number: int, cpu_ms: int, **other: int) -> dict[str, int]:
        span = {"t0_ns": number * 10 * MS, "t1_ns": (number + 1) * 10 * MS}
        return PROCESS | {"cpu_ns": cpu_ms * MS} | span | other

    rows = records(
        *(row(0, 15), row(1, 10), row(1, 5), row(2, 4), row(9, 7), row(0, 7, package=9)),
        row(0, 1, owner_kind=OwnerKind.IDLE),
    )
    energies = energy([n * 10 * MS for n in range(4)], {(0, "package"): [10**9] * 3})
    group = np.array([0, 0, 1, 1, 0, 0, 0])
    for first, outside in ((0, 5 * MS), (7, 0)):  # in window 0 the excess ran before tracing began
        anomalies = Anomalies()
        batch = from_aggregates(rows, group, energies, machine(0), first=first, anomalies=anomalies)
        assert batch.idle_ns.tolist() == [[0], [0], [6 * MS]]
        assert batch.entries.cpu_ns.tolist() == [10 * MS, 6_666_667, 3_333_333, 4 * MS]
        lost = (anomalies.outside_ns, anomalies.overlap_ns, anomalies.unknown_cpu)
        assert lost == (outside + 7 * MS, 10 * MS - outside, 1)


# ---- learning seldom, as the agent does ----------------------------------------------------------

META = Meta(servers=(Server(SERVER, "shop-db", "mysql", attach_mode="symbol"),))
WINDOWS = 600  #: a block ends after 512, so that one is closed and one is open


def test_learning_seldom_divides_the_same_joules_within_the_intervals(
    tmp_path: Path,
) -> None:
    stream = TwoPackages(windows=WINDOWS).stream()
    blocks = Stream(io.BytesIO(stream))
    source = StreamSource(blocks, fake_tracer.context(META), LiveOptions(refresh_s=60.0))
    snapshots = source.snapshots(Controls(1.0, totals=False))
    intervals = [interval_of(snapshot.interval) for snapshot in snapshots]
    trace = tmp_path / "trace"
    record(Stream(io.BytesIO(stream)), TraceWriter(trace), fake_tracer.context(META))
    attributed = attribute(Trace(trace), ("fingerprint",))

    sums: dict[Shape, Query] = {}
    for interval in intervals:
        for domain, energy_nj in interval.node_nj.items():
            owned = sum(spent.energy_nj.get(domain, 0) for spent in interval.owners.values())
            assert owned == energy_nj
        for shape, query in interval.queries.items():
            sums.setdefault(shape, Query()).add(query)
    assert sum(interval.node_nj["package"] for interval in intervals) == attributed.main.measured_nj
    rows = {row.keys["fingerprint"]: row for row in attributed.rows if row.kind == "queries"}
    for shape, query in sums.items():
        row, amounts = rows[shape.fingerprint], query.amounts
        assert (amounts.calls, amounts.cpu_ns) == (row.calls, row.cpu_ns)
        low, high = row.energy_nj_ci95
        assert low <= amounts.energy_nj <= high
        assert query.error is not None
        low, high = query.error.ends(amounts.energy_nj)
        assert low <= row.energy_nj <= high
        assert amounts.energy_nj == pytest.approx(row.energy_nj, rel=0.05)


def test_what_was_learned_at_first_serves_for_half_the_time_it_was_learned_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learned_from_ns: list[int] = []
    learn = Account._learn

    def counted(account: Account, block: WindowBatch, *, keep: bool) -> Mapping[str, PowerModel]:
        if not keep:
            bounds_ns = block.energy.boundaries_ns
            learned_from_ns.append(int(bounds_ns[-1] - bounds_ns[0]))
        return learn(account, block, keep=keep)

    monkeypatch.setattr(Account, "_learn", counted)
    blocks = Stream(io.BytesIO(TwoPackages(windows=400).stream()))
    options = LiveOptions(groups=(PER_SERVER,), refresh_s=60.0)
    source = StreamSource(blocks, fake_tracer.context(META), options)
    count = sum(1 for _ in source.snapshots(Controls(0.2, totals=False)))
    assert 3 <= len(learned_from_ns) < count / 2
    assert all(2 * (b - a) >= a for a, b in pairwise(learned_from_ns))
