# SPDX-License-Identifier: Apache-2.0
"""The kernel side's sums of tails, wake-ups and awake time against the reference of the sweep.

The programs' own code and the tracer's, compiled for the host. Events come one after another.
"""

from __future__ import annotations

import ctypes
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from functools import cache

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from host_library import compiled
from qjoule.contract import AGGREGATE, CPU, PACKAGE_TAILS, PACKAGE_TIME, TAIL_NS, TAILS
from qjoule.model.arrays import Machine, Segments
from sweep_reference import reference
from two_packages_idle import LENGTHS_NS

_U64 = ctypes.c_uint64


@cache
def _library() -> ctypes.CDLL:
    include = ("-Itests/support/fuzz/host", "-Itests/support/tracer_parts/host", "-Itracer")
    flags = ("-std=gnu11", "-D_GNU_SOURCE", "-O1", "-Wno-unused-parameter", *include)
    sources = ("tests/support/tracer_parts/tails_host.c", "tracer/idle_times.c")
    loaded = compiled(*sources, compiler="clang", flags=flags)
    loaded.tails_switch.argtypes = [ctypes.c_uint, ctypes.c_uint, _U64]
    loaded.tails_edge.argtypes = [_U64]
    loaded.tails_drain.argtypes = [_U64, _U64]
    loaded.tails_found.restype = ctypes.c_size_t
    return loaded


class Tails:
    """One machine. Times are ns, at least 1, and must not decrease."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def switch(self, cpu: int, tgid: int, now_ns: int) -> tuple[bool, bool]:
        """The CPU now runs a process; 0: nothing. Whether that woke its core, and its package."""
        woke = self._library.tails_switch(cpu, tgid, now_ns)
        return bool(woke & 1), bool(woke & 2)

    def edge(self, t_ns: int) -> None:
        """A window ends and the next one begins."""
        self._library.tails_edge(t_ns)

    def drain(self, t0_ns: int, t1_ns: int) -> None:
        """The tracer takes the window that has ended."""
        self._library.tails_drain(t0_ns, t1_ns)

    def records(self) -> tuple[np.ndarray, np.ndarray]:
        """AGGREGATE and PACKAGE_TIME records of all windows so far."""
        sums, times, times_count = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
        arguments = (ctypes.byref(pointer) for pointer in (sums, times, times_count))
        sums_count = self._library.tails_found(*arguments)
        return (
            np.frombuffer(ctypes.string_at(sums, sums_count * AGGREGATE.itemsize), AGGREGATE),
            np.frombuffer(
                ctypes.string_at(times, times_count.value * PACKAGE_TIME.itemsize), PACKAGE_TIME
            ),
        )


@contextmanager
def tails(cpus: list[tuple[int, int, int, int]]) -> Iterator[Tails]:
    """`cpus`: (cpu, package, core, sibling) as in the contract. There is one machine at a time."""
    records = np.array(cpus, CPU)
    threads = int(np.bincount(records["sibling"]).max())
    library = _library()
    library.tails_start(ctypes.c_void_p(records.ctypes.data), len(cpus), threads)
    try:
        yield Tails(library)
    finally:
        library.tails_stop()


Machines = list[tuple[int, int, int, int]]  #: of CPUs: cpu, package, core, sibling
SMT = [(cpu, cpu // 4, cpu % 4 // 2, cpu // 2 * 2) for cpu in range(8)]
CORES = [(cpu, cpu // 2, cpu % 2, cpu) for cpu in range(4)]
BEGIN_NS = 1_000_000
#: Idle and busy times from the scheduler's to beyond the longest tail.
STEPS_NS = (1, 300, 999, 1000, 20_000, 150_000, 700_000, 2_500_000, 9_000_000)
#: CPU, owner (0: idle), and the time since the event before; a CPU that is not there ends a window.
EVENTS = st.lists(
    st.tuples(st.integers(0, 8), st.integers(0, 3), st.sampled_from(STEPS_NS)), max_size=60
)


class Played:
    """What the programs and the tracer made of some events."""

    def __init__(self, machine: Machines, steps: Sequence[tuple[int, int, int]]):
        self.segments: list[tuple[int, int, int, int]] = []
        self.wakes: dict[tuple[int, int, str], int] = defaultdict(int)
        self.bounds = [BEGIN_NS]
        self._running: dict[int, tuple[int, int]] = {}
        self._waits: tuple[int, int] | None = None
        with tails(machine) as host:
            host.edge(BEGIN_NS)
            host.drain(0, BEGIN_NS)
            before = [len(records) for records in host.records()]
            now_ns = BEGIN_NS
            for cpu, owner, step_ns in steps:
                now_ns += step_ns
                if cpu >= len(machine):
                    self._edge(host, now_ns)
                    continue
                if owner == 2:  # late: many programs ran since the window ended
                    self._drain(host)
                self._switch(host, cpu, owner, now_ns)
            self._edge(host, now_ns + 1)
            self._drain(host)
            for cpu, (owner, t0_ns) in self._running.items():
                self.segments.append((t0_ns, now_ns + 1, cpu, owner))
            sums, times = host.records()
        self.sums, self.times = sums[before[0] :].copy(), times[before[1] :].copy()

    def _switch(self, host: Tails, cpu: int, owner: int, now_ns: int) -> None:
        if cpu in self._running:
            before, t0_ns = self._running.pop(cpu)
            self.segments.append((t0_ns, now_ns, cpu, before))
        if owner:
            self._running[cpu] = owner, now_ns
        for sleeper, woke in zip(("core", "package"), host.switch(cpu, owner, now_ns), strict=True):
            self.wakes[len(self.bounds) - 1, owner, sleeper] += woke

    def _edge(self, host: Tails, now_ns: int) -> None:
        self._drain(host)  # the tracer is never more than one window behind
        self._waits = self.bounds[-1], now_ns
        self.bounds.append(now_ns)
        host.edge(now_ns)

    def _drain(self, host: Tails) -> None:
        if self._waits is not None:
            host.drain(*self._waits)
        self._waits = None


@given(EVENTS, st.sampled_from([SMT, CORES]))
def test_sums_are_those_of_the_sweep(steps: list[tuple[int, int, int]], machine: Machines) -> None:
    """Wake-ups and awake time exactly; tails to 1 ns for each time that was shared."""
    played = Played(machine, steps)
    t0_ns, t1_ns, ran_on, owners = np.array(sorted(played.segments), np.int64).reshape(-1, 4).T
    cpu, package, _, sibling = np.array(machine, np.int64).T
    segments = Segments(t0_ns.copy(), t1_ns.copy(), ran_on.copy(), owners.copy())
    expected = reference(Machine(cpu, package, sibling), played.bounds, segments)
    wakes: dict[tuple[int, int, str], Fraction] = defaultdict(Fraction)
    tails_ns: dict[tuple[int, int, int, str, int], Fraction] = defaultdict(Fraction)
    for (window, place, owner), entry in expected.entries.items():
        for sleeper in ("core", "package"):
            wakes[window, owner, sleeper] += entry.effects[f"{sleeper}_wakes"]
            for ns in LENGTHS_NS[sleeper]:
                each = entry.effects[f"{sleeper}_tail_{ns // 1000}us"]
                tails_ns[window, place, owner, sleeper, ns] += each
    assert {k: v for k, v in wakes.items() if v} == {k: v for k, v in played.wakes.items() if v}
    for row in played.sums:
        window = played.bounds.index(int(row["t0_ns"]))
        for sleeper in ("core", "package"):
            for ns, each in zip(
                LENGTHS_NS[sleeper], row[f"{sleeper}_tail_ns"].tolist(), strict=True
            ):
                tails_ns[window, int(row["package"]), int(row["tgid"]), sleeper, ns] -= each
    most = len(played.segments) + len(played.bounds)
    assert not [key for key, off in tails_ns.items() if abs(off) > most]
    for row in played.times:
        window = played.bounds.index(int(row["t0_ns"]))
        assert int(row["t1_ns"]) == played.bounds[window + 1]
        assert int(row["awake_ns"]) == expected.active_ns[window, int(row["package"])]
    assert len(played.times) == (len(played.bounds) - 1) * len(set(package.tolist()))
    assert tuple(TAIL_NS << i for i in range(TAILS)) == LENGTHS_NS["core"]
    assert len(LENGTHS_NS["package"]) == PACKAGE_TAILS
