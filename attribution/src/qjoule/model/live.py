"""The live front end: sums made in the kernel to the same windows as recorded segments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from qjoule.contract import LATENCY_BUCKETS, SHAPE_OTHER, SHAPE_UNKNOWN, OwnerKind
from qjoule.model import latency
from qjoule.model.arrays import COUNTERS, Anomalies, Entries, Machine, WindowBatch
from qjoule.model.counters import I64, WindowEnergy
from qjoule.model.labels import (
    KERNEL,
    OTHER_SHAPES,
    PREPARED_BEFORE,
    TRACER,
    GroupLabel,
    LabelIndex,
    background,
    process,
)

Records = npt.NDArray[Any]  #: of `contract.AGGREGATE`


@dataclass(frozen=True)
class LiveNames:
    """How a live view knows the names of what the kernel counts by number."""

    fingerprint: Callable[[int], tuple[str, str]]  #: shape hash to (fingerprint, text)
    server: Callable[[int], str]
    process: Callable[[int], str]  #: by tgid
    thread: Callable[[int], str]  #: role, by pid


@dataclass
class LiveGroups:
    """Groups of live records; labels and numbers last as long as this object."""

    names: LiveNames
    index: LabelIndex = field(default_factory=LabelIndex)

    def group(self, records: Records) -> I64:
        """Group number of each record; queries by fingerprint, others as in a recorded trace."""
        keys = ["owner_kind", "shape", "server", "tgid", "pid"]
        unique, inverse = np.unique(records[keys], return_inverse=True)
        numbers = [self.index.number(self._label(*row)) for row in unique.tolist()]
        return np.array(numbers, np.int64)[inverse]

    def _label(self, kind: int, shape: int, server: int, tgid: int, pid: int) -> GroupLabel:
        if kind == OwnerKind.QUERY:
            return self._query(shape, self.names.server(server))
        if kind == OwnerKind.SERVER:
            return background(self.names.server(server), self.names.thread(pid))
        if kind == OwnerKind.KERNEL:
            return KERNEL
        return TRACER if kind == OwnerKind.TRACER else process(self.names.process(tgid))

    def _query(self, shape: int, server: str) -> GroupLabel:
        special = {SHAPE_UNKNOWN: PREPARED_BEFORE, SHAPE_OTHER: OTHER_SHAPES}
        if shape in special:
            name = special[shape]
            return GroupLabel("queries", (("fingerprint", name),), name, server)
        fingerprint, text = self.names.fingerprint(shape)
        return GroupLabel("queries", (("fingerprint", fingerprint),), text, server, named=True)


def from_aggregates(
    records: Records,
    group: I64,
    energy: WindowEnergy,
    machine: Machine,
    *,
    first: int = 0,
    lost_ns: I64 | None = None,
    anomalies: Anomalies | None = None,
) -> WindowBatch:
    """The batch of all windows of `energy` from the kernel's sums over them.

    A record belongs to the window in which its middle lies. `first`: number of the first window
    since the ledger began. `lost_ns`: (windows, packages). Idle is what is left of the CPUs' time;
    sums beyond it are counted as overlap.
    """
    bounds, packages = energy.boundaries_ns, machine.packages
    count = max(len(bounds) - 1, 0)
    kept = records["owner_kind"] != OwnerKind.IDLE  # idle is what the others leave
    slot_of = {package: slot for slot, package in enumerate(packages)}
    slot = np.array([slot_of.get(p, -1) for p in records["package"].tolist()], np.int64)
    # Differences first: t0 + t1 of hostile records would not fit.
    t0, t1 = records["t0_ns"].astype(np.int64), records["t1_ns"].astype(np.int64)
    window = np.searchsorted(bounds, t0 + (t1 - t0) // 2, "right") - 1
    inside = kept & (slot >= 0) & (window >= 0) & (window < count)
    entries = _sum(records[inside], window[inside], slot[inside], group[inside], len(packages))
    sizes = np.bincount(machine.package_slots(), minlength=len(packages))
    capacity = np.diff(bounds)[:, None] * sizes[None, :]
    busy = np.zeros((count, len(packages)), np.int64)
    np.add.at(busy, (entries.window, entries.package), entries.cpu_ns)
    lost = np.zeros_like(busy) if lost_ns is None else np.minimum(lost_ns, capacity - busy)
    lost = np.maximum(lost, 0)
    idle = capacity - busy - lost
    if anomalies is not None:
        anomalies.unknown_cpu += int((kept & (slot < 0)).sum())
        anomalies.outside_ns += int(records["cpu_ns"][kept & (slot >= 0) & ~inside].sum())
        anomalies.overlap_ns += int(-idle[idle < 0].sum())
    return WindowBatch(first, energy, packages, np.maximum(idle, 0), lost, entries)


def _sum(records: Records, window: I64, slot: I64, group: I64, packages: int) -> Entries:
    groups = int(group.max(initial=0)) + 1
    key = (window * packages + slot) * groups + group
    present, index = np.unique(key, return_inverse=True)
    cpu_ns = np.zeros(len(present), np.int64)
    np.add.at(cpu_ns, index, records["cpu_ns"].astype(np.int64))
    counts = np.zeros((len(present), COUNTERS))
    counted = np.zeros((len(present), COUNTERS))
    for i in range(COUNTERS):
        valid = (records["valid"] >> i) & 1 == 1
        values = np.where(valid, records["counters"][:, i], 0).astype(np.float64)
        counts[:, i] = np.bincount(index, values, minlength=len(present))
        ns = np.where(valid, records["cpu_ns"], 0).astype(np.float64)
        counted[:, i] = np.bincount(index, ns, minlength=len(present))
    some = cpu_ns > 0
    pair, who = np.divmod(present, groups)
    window, package = np.divmod(pair, packages)
    return Entries(
        window[some], package[some], who[some], cpu_ns[some], counts[some], counted[some]
    )


@dataclass
class LiveCalls:
    """Running call statistics from aggregate records."""

    calls: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    latency_ns: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    histogram: I64 = field(default_factory=lambda: np.zeros((0, LATENCY_BUCKETS), np.int64))

    def add(self, records: Records, group: I64) -> None:
        """Adds the calls of query records; `group` as `LiveGroups.group` gave it."""
        mine = records["owner_kind"] == OwnerKind.QUERY
        self._grow(int(group.max(initial=-1)) + 1)
        who = group[mine]
        np.add.at(self.calls, who, records["calls"][mine].astype(np.int64))
        np.add.at(self.latency_ns, who, records["latency_ns"][mine].astype(np.float64))
        np.add.at(self.histogram, who, records["latency"][mine].astype(np.int64))

    def stats(self, groups: int) -> latency.CallStats:
        self._grow(groups)
        return latency.from_histograms(self.calls, self.latency_ns, self.histogram)

    def _grow(self, groups: int) -> None:
        missing = groups - len(self.calls)
        if missing > 0:
            self.calls = np.append(self.calls, np.zeros(missing, np.int64))
            self.latency_ns = np.append(self.latency_ns, np.zeros(missing))
            self.histogram = np.vstack(
                [self.histogram, np.zeros((missing, LATENCY_BUCKETS), np.int64)]
            )
