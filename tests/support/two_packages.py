# SPDX-License-Identifier: Apache-2.0
"""A deterministic machine as a tracer would record it: its segments and its sums in one stream.

Two packages of two cores with two threads each run three statements, a server's background, another
process, the kernel and the tracer. A formula gives each one's power. Counters change once a
millisecond, at different moments in each package. Segments and the kernel's sums are made from the
same slices of CPU time. The sums use plain loops, as an independent check of `SegmentWindows`.
"""

from __future__ import annotations

import errno
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

import fake_tracer as ft
from fake_tracer import BEGIN_NS, MS, block
from qjoule import contract
from qjoule.contract import AttachMode, Block, Grade, Loss, OwnerKind, SessionEvent, TaskEvent
from qjoule.model.latency import bucket_edges_ns
from qjoule.servers import registry
from two_packages_idle import FREE, Costs, extra_power, idle_sums, places, traffic_w

CPUS, THREADS, PACKAGE_CPUS = 8, 2, 4
WINDOW_NS = 20 * MS
PERIOD_NS = 1 * MS  #: of the counters
LAG_NS = PERIOD_NS // 2
PHASE_NS = (150_000, 800_000)  #: of each package's counter
UNIT_J = 2.0**-16
IDLE_W, SHARED_W = 12.0, 6.0  #: power of a package: at rest, and while any of its threads runs
SMT = 0.6  #: share of a thread's power that remains while its sibling runs
SERVER, TGID = 1, 100


@dataclass(frozen=True)
class Owner:
    """An owner of threads. `w`: power of one of them alone; `rates`: counts per ns of CPU time."""

    kind: OwnerKind
    pid: int
    tgid: int
    comm: bytes
    w: float
    rates: tuple[float, float, float]
    shape: int = 0


STATEMENTS = (b"SELECT a FROM t WHERE id = 1", b"SELECT SUM(b) FROM t", b"UPDATE t SET b = 2")
OWNERS = (
    Owner(OwnerKind.QUERY, 101, TGID, b"connection", 9.0, (3.0, 6.0, 0.001), 11),
    Owner(OwnerKind.QUERY, 102, TGID, b"connection", 5.0, (3.0, 2.0, 0.020), 12),
    Owner(OwnerKind.QUERY, 103, TGID, b"connection", 7.0, (3.0, 4.0, 0.005), 13),
    Owner(OwnerKind.SERVER, 110, TGID, b"purge", 4.0, (3.0, 1.5, 0.010)),
    Owner(OwnerKind.PROCESS, 200, 200, b"backup", 6.0, (3.0, 3.0, 0.008)),
    Owner(OwnerKind.KERNEL, 3, 3, b"kworker", 5.0, (3.0, 2.0, 0.004)),
    Owner(OwnerKind.TRACER, 300, 300, b"qjoule-tracer", 5.0, (3.0, 3.0, 0.002)),
)


@dataclass(frozen=True)
class Stretch:
    """CPU time of one owner; times since the beginning. A query consists of one slice."""

    t0_ns: int
    t1_ns: int
    cpu: int
    owner: Owner
    query: int  #: 0 none


@dataclass
class TwoPackages:
    """`windows` windows drawn by `seed`; each reading is `late_ns` later than intended."""

    windows: int = 100
    seed: int = 1
    late_ns: Sequence[int] = ()
    lost: Sequence[int] = ()  #: numbers of slices whose records are lost
    shared_w: float = SHARED_W
    dies: int = 1  #: of each package, with a counter each
    unplugged: int = 1 << 62  #: the last counter cannot be read after this many windows
    bursts: bool = False  #: of 20 to 300 us, with as much idle time between them
    costs: Costs = FREE
    stolen: tuple[float, float] | None = None  #: of each package's busy time; None: not recorded
    stretches: list[Stretch] = field(default_factory=list)

    def __post_init__(self) -> None:
        random = np.random.default_rng(self.seed)
        for cpu in range(CPUS):
            self.stretches += self._one_cpu(random, cpu)
        self.stretches.sort(key=lambda stretch: (stretch.t0_ns, stretch.cpu))
        extra = extra_power(self._places(self.stretches), self.length_ns, self.costs)
        self._energy = [
            _Energy.of(self._of_package(package), self.shared_w, self.costs, extra[package])
            for package in (0, 1)
        ]
        lost_numbers = set(self.lost)
        self._kept = [stretch for i, stretch in enumerate(self.stretches) if i not in lost_numbers]
        self._of_cpu = [
            [stretch for stretch in self._kept if stretch.cpu == cpu] for cpu in range(CPUS)
        ]
        self._begins = [[stretch.t0_ns for stretch in of_cpu] for of_cpu in self._of_cpu]

    @property
    def length_ns(self) -> int:
        return self.windows * WINDOW_NS

    def stream(self, sums_lag_ns: int = LAG_NS) -> bytes:
        """The tracer's blocks; windows of sums end `sums_lag_ns` before their reading."""
        out = [self._head()]
        ends_ns = [n * WINDOW_NS + LAG_NS - sums_lag_ns for n in range(1, self.windows)]
        self._bounds_ns = [0, *ends_ns, self._read_ns(self.windows)]
        self._idle, self._asleep = idle_sums(self._places(self._kept), self._bounds_ns)
        for number in range(1, self.windows + 1):
            out += self._window(number - 1, self._read_ns(number))
        return b"".join([*out, ft.end(BEGIN_NS + self.length_ns)])

    def _one_cpu(self, random: np.random.Generator, cpu: int) -> Iterator[Stretch]:
        """Every second window has other statements, so that a wrong window boundary is noticed."""
        now_ns, number = int(random.integers(0, MS)), 0
        while now_ns < self.length_ns - 10 * MS:
            odd = now_ns // WINDOW_NS % 2
            share = [(0.45, 0.05), (0.05, 0.45), (0.15, 0.15), *[(0.1, 0.1)] * 2]
            weights = np.array([pair[odd] for pair in share] + [0.075, 0.075])
            owner = OWNERS[int(random.choice(len(OWNERS), p=weights / weights.sum()))]
            longest_ns = 300_000 if self.bursts else 5 * MS
            shortest_ns = 20_000 if self.bursts else 100_000
            end_ns = now_ns + int(random.integers(shortest_ns, longest_ns))
            number += 1
            query = cpu * 1_000_000 + number if owner.kind is OwnerKind.QUERY else 0
            yield Stretch(now_ns, end_ns, cpu, owner, query)
            gap_ns = int(random.exponential(self._gap_ns(now_ns)))
            now_ns = end_ns + gap_ns * int(random.integers(0, 2))

    def _gap_ns(self, t_ns: int) -> int:
        """The mean idle time on a CPU between two slices; bursts are more and less frequent."""
        if not self.bursts:
            return 4 * MS
        return (300_000, 4 * MS, MS)[t_ns // WINDOW_NS % 3]

    def _places(self, stretches: Sequence[Stretch]) -> Iterator[tuple[str, int, list[Any]]]:
        return places(stretches, PACKAGE_CPUS, THREADS)

    def _of_package(self, package: int) -> list[Stretch]:
        return [stretch for stretch in self.stretches if stretch.cpu // PACKAGE_CPUS == package]

    def _read_ns(self, number: int) -> int:
        if number == self.windows:
            return self.length_ns
        late_ns = self.late_ns[number % len(self.late_ns)] if len(self.late_ns) else 0
        return number * WINDOW_NS + LAG_NS + late_ns

    def _head(self) -> bytes:
        hello = {
            "version": contract.CONTRACT_VERSION,
            "mode": contract.Mode.LIVE,
            "t_ns": BEGIN_NS,
            "realtime_ns": 1_700_000_000_000_000_000,
            "window_ns": WINDOW_NS,
            "cpus": CPUS,
            "counters": 0b111,
            "domains": 2 * self.dies,
            "grade": Grade.MEASURED,
            "energy_source": b"powercap",
        }
        cpus = [
            {"cpu": n, "package": n // PACKAGE_CPUS, "core": n % PACKAGE_CPUS // THREADS}
            | {"sibling": n // THREADS * THREADS}
            for n in range(CPUS)
        ]
        domain: dict[str, Any] = {"range": 1 << 32, "unit_j": UNIT_J, "idle_w": np.nan}
        domain["period_ns"] = PERIOD_NS
        dies = range(self.dies) if self.dies > 1 else (contract.WHOLE_PACKAGE,)
        places = [{"package": package, "die": die} for package in (0, 1) for die in dies]
        domains = [domain | {"domain": n, "name": b"package"} | at for n, at in enumerate(places)]
        out = block(Block.HELLO, hello) + block(Block.CPU, *cpus) + block(Block.DOMAIN, *domains)
        session = {"session": 7, "t_ns": BEGIN_NS, "tgid": TGID, "server": SERVER}
        session |= {"event": SessionEvent.DATABASE, "text_bytes": 4, "server_kind": 1}
        out += block(Block.SESSION, session, text=b"shop")
        for owner in OWNERS:
            out += ft.task(BEGIN_NS, owner.pid, TaskEvent.ALIVE, owner.comm, owner.tgid)
        out += ft.task(BEGIN_NS, TGID, TaskEvent.ALIVE, b"mariadbd")
        for owner, statement in zip(OWNERS, STATEMENTS, strict=False):
            out += ft.text(owner.shape, statement, dialect=registry.dialect("mysql"))
        return out

    def _window(self, window: int, read_ns: int) -> list[bytes]:
        """The reading that ends a window of sums, those sums, and the segments that ended in it."""
        t0_ns, t1_ns = self._bounds_ns[window : window + 2]
        raw = [self._energy[package].raw(read_ns, PHASE_NS[package]) for package in (0, 1)]
        row = {"t_ns": BEGIN_NS + read_ns, "half_width_ns": 500}
        readings: list[dict[str, Any]] = [
            row | {"raw": (value + die) // self.dies, "package": package}
            for package, value in enumerate(raw)
            for die in range(self.dies)
        ]
        readings = [row | {"domain": number} for number, row in enumerate(readings)]
        if window >= self.unplugged:
            readings[-1]["status"] = errno.ENODEV
        ended_stretches = [stretch for stretch in self._kept if t0_ns < stretch.t1_ns <= t1_ns]
        out = [block(Block.ENERGY, *readings), *self._sums(window, ended_stretches)]
        if ended_stretches:
            out.append(block(Block.SEGMENT_COUNTERS, *map(self._segment, ended_stretches)))
        if queries := [_query(stretch) for stretch in ended_stretches if stretch.query]:
            out.append(block(Block.QUERY, *queries))
        out += self._loss(t0_ns, t1_ns)
        if self.stolen:
            out.append(block(Block.CPU_TIME, *(self._cpu_time(cpu, t1_ns) for cpu in range(CPUS))))
        return [*out, ft.flush(BEGIN_NS + max(t0_ns - WINDOW_NS, 0))]

    def _cpu_time(self, cpu: int, t_ns: int) -> dict[str, Any]:
        """The running sums of a CPU."""
        of_cpu = self._of_cpu[cpu]
        busy_ns = sum(
            min(stretch.t1_ns, t_ns) - stretch.t0_ns for stretch in of_cpu if stretch.t0_ns < t_ns
        )
        share = self.stolen[cpu // PACKAGE_CPUS] if self.stolen else 0.0
        times = {"t_ns": BEGIN_NS + t_ns, "busy_ns": busy_ns, "idle_ns": t_ns - busy_ns}
        return {"cpu": cpu, "steal_ns": round(busy_ns * share), **times}

    def _segment(self, stretch: Stretch) -> dict[str, Any]:
        times = {
            "t0_ns": BEGIN_NS + stretch.t0_ns,
            "t1_ns": BEGIN_NS + stretch.t1_ns,
            "cpu": stretch.cpu,
        }
        owner = stretch.owner
        identity = {
            "pid": owner.pid,
            "tgid": owner.tgid,
            "owner_kind": owner.kind,
            "query": stretch.query,
        }
        identity["server"] = SERVER if owner.kind in (OwnerKind.QUERY, OwnerKind.SERVER) else 0
        counted = {"valid": 0b111, "counted": contract.WHOLE}
        (segment,) = ft.records(Block.SEGMENT, [times | identity | counted])
        return {"segment": segment, "counters": _counts(stretch, stretch.t1_ns)}

    def _sums(self, window: int, stretches: Sequence[Stretch]) -> list[bytes]:
        """The kernel's sums over a window, per package and owner."""
        t0_ns, t1_ns = self._bounds_ns[window : window + 2]
        zero = dict.fromkeys(("cpu_ns", "overlap_ns", "calls", "latency_ns"), 0)
        vectors = {"counters": 3, "overlap_counters": 3, "latency": contract.LATENCY_BUCKETS}
        sums: dict[tuple[int, Owner], dict[str, Any]] = defaultdict(
            lambda: zero | {name: np.zeros(size) for name, size in vectors.items()}
        )
        for stretch in self._kept:
            if stretch.t0_ns >= t1_ns or stretch.t1_ns <= t0_ns:
                continue
            begin_ns, end_ns = max(stretch.t0_ns, t0_ns), min(stretch.t1_ns, t1_ns)
            row = sums[stretch.cpu // PACKAGE_CPUS, stretch.owner]
            counts = _counts(stretch, end_ns) - _counts(stretch, begin_ns)
            overlap_ns = self._sibling_ns(stretch.cpu, begin_ns, end_ns)
            row["cpu_ns"] += end_ns - begin_ns
            row["overlap_ns"] += overlap_ns
            row["counters"] += counts
            row["overlap_counters"] += counts * (overlap_ns / (end_ns - begin_ns))
        for stretch in stretches:
            if stretch.query:
                row = sums[stretch.cpu // PACKAGE_CPUS, stretch.owner]
                row["calls"] += 1
                row["latency_ns"] += stretch.t1_ns - stretch.t0_ns
                edges_ns = bucket_edges_ns()
                row["latency"][
                    np.searchsorted(edges_ns, stretch.t1_ns - stretch.t0_ns, "right") - 1
                ] += 1
        for (number, package, owner), idle in self._idle.items():
            if number == window:
                sums[package, owner].update(idle)
        times = {"t0_ns": BEGIN_NS + t0_ns, "t1_ns": BEGIN_NS + t1_ns}
        rows = [
            times
            | {"valid": 0b111, "counted_ns": [row["cpu_ns"]] * 3, "package": package}
            | (row | _whose(owner))
            for (package, owner), row in sums.items()
        ]
        awake = [
            times | {"package": package, "awake_ns": t1_ns - t0_ns - self._asleep[window, package]}
            for package in (0, 1)
        ]
        out = [block(Block.PACKAGE_TIME, *awake)]
        return [*out, block(Block.AGGREGATE, *rows)] if rows else out

    def _sibling_ns(self, cpu: int, t0_ns: int, t1_ns: int) -> int:
        """How long the other thread of a core ran; lost time is not included."""
        busy_ns = 0
        # Slices do not overlap, so only the one before may reach into the time.
        first = max(bisect_left(self._begins[cpu ^ 1], t0_ns) - 1, 0)
        for other in self._of_cpu[cpu ^ 1][first:]:
            if other.t0_ns >= t1_ns:
                break
            busy_ns += max(min(other.t1_ns, t1_ns) - max(other.t0_ns, t0_ns), 0)
        return busy_ns

    def _loss(self, t0_ns: int, t1_ns: int) -> list[bytes]:
        """One record for each CPU that lost slices in this window."""
        out = []
        missing = [self.stretches[i] for i in self.lost]
        for cpu in sorted({stretch.cpu for stretch in missing if t0_ns < stretch.t1_ns <= t1_ns}):
            of_cpu = [
                stretch for stretch in missing if stretch.cpu == cpu and stretch.t1_ns <= t1_ns
            ]
            lost_ns = sum(stretch.t1_ns - stretch.t0_ns for stretch in of_cpu)
            row = {"t_ns": BEGIN_NS + t1_ns, "count": len(of_cpu), "lost_ns": lost_ns, "cpu": cpu}
            out.append(block(Block.LOSS, row | {"cause": Loss.SEGMENT}))
        return out


@dataclass(frozen=True)
class _Energy:
    """A package's energy since the beginning: straight lines between `edges_ns`."""

    edges_ns: npt.NDArray[np.int64]
    joules: npt.NDArray[np.float64]

    @staticmethod
    def of(
        stretches: Sequence[Stretch],
        shared_w: float,
        costs: Costs,
        extra: Sequence[tuple[int, int, float]],
    ) -> _Energy:
        times = (t for stretch in stretches for t in (stretch.t0_ns, stretch.t1_ns))
        edges = np.unique([0, *times, *(t for addition in extra for t in addition[:2]), 10**12])
        alone = np.zeros((PACKAGE_CPUS, len(edges) - 1))
        misses = np.zeros(len(edges) - 1)
        for stretch in stretches:
            first, last = np.searchsorted(edges, (stretch.t0_ns, stretch.t1_ns))
            alone[stretch.cpu % PACKAGE_CPUS, first:last] = stretch.owner.w
            misses[first:last] += stretch.owner.rates[2]
        cores = (alone.reshape(-1, THREADS, len(misses)).max(axis=1) > 0).sum(axis=0)
        sibling = alone[np.arange(PACKAGE_CPUS) ^ 1]
        power = np.where(sibling > 0, SMT, 1.0) * alone
        watts = IDLE_W + shared_w * (alone.max(axis=0) > 0) + power.sum(axis=0)
        watts += traffic_w(misses, cores, costs)
        for begin_ns, end_ns, w in extra:
            first, last = np.searchsorted(edges, (begin_ns, end_ns))
            watts[first:last] += w
        joules = np.append(0.0, np.cumsum(watts * np.diff(edges) * 1e-9))
        return _Energy(edges, joules)

    def raw(self, t_ns: int, phase_ns: int) -> int:
        """The value of a counter that is updated every `PERIOD_NS`."""
        updated_ns = (t_ns - phase_ns) // PERIOD_NS * PERIOD_NS + phase_ns
        return int(np.interp(updated_ns, self.edges_ns, self.joules) / UNIT_J)


def _counts(stretch: Stretch, until_ns: int) -> npt.NDArray[np.int64]:
    """Counts of a slice up to a moment, in whole numbers."""
    rates = np.array(stretch.owner.rates)
    counts: npt.NDArray[np.int64] = np.floor(rates * (until_ns - stretch.t0_ns)).astype(np.int64)
    return counts


def _query(stretch: Stretch) -> dict[str, Any]:
    times = {"begin_ns": BEGIN_NS + stretch.t0_ns, "end_ns": BEGIN_NS + stretch.t1_ns}
    identity = {"pid": stretch.owner.pid, "tgid": TGID, "server": SERVER, "session": 7}
    execution = {"query": stretch.query, "shape": stretch.owner.shape, "executions": 1}
    return (
        times
        | identity
        | execution
        | {"attach_mode": AttachMode.SYMBOL, "command": contract.Command.QUERY}
    )


def _whose(owner: Owner) -> dict[str, Any]:
    """The key of a row of sums, at the granularity of the live view."""
    out: dict[str, Any] = {"owner_kind": owner.kind, "shape": owner.shape}
    if owner.kind in (OwnerKind.QUERY, OwnerKind.SERVER):
        out["server"] = SERVER
    if owner.kind is not OwnerKind.QUERY:
        out |= {"tgid": owner.tgid, "pid": owner.pid}
    return out
