# SPDX-License-Identifier: Apache-2.0
"""What runs on a server in each scenario: statement shapes, its own threads, and its neighbours."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from studies.bench.accuracy.activity import Activity, draw_activity
from studies.bench.accuracy.machine import Topology
from studies.bench.accuracy.recording import Group
from studies.bench.accuracy.workload import Source

#: Keeps cases small enough to run hundreds of them.
RUNS_PER_S = 1_500


def _any_activity(random: np.random.Generator, bound: float, hidden: float) -> Activity:
    return draw_activity(random, np.array([bound]), hidden)


def shape(
    random: np.random.Generator,
    name: str,
    hidden: float,
    *,
    load: float,
    call_ns: float,
    bound: float,
) -> Source:
    """Calls of one statement shape; `bound` from compute-bound (0) to memory-bound (1).

    A shape that would run more than `RUNS_PER_S` slices a second gets longer calls instead.
    """
    parts = random.uniform(1, 4)
    return Source(
        Group(name, "queries"),
        _any_activity(random, bound, hidden),
        load,
        max(call_ns, load * parts / RUNS_PER_S * 1e9),
        spread=random.uniform(0.2, 0.8),
        parts=parts,
        wait_ns=random.uniform(2e4, 5e5),
        pace=str(random.choice(["poisson", "closed"])),
        swing=random.uniform(0.3, 1.2),
    )


def shapes(
    random: np.random.Generator,
    count: int,
    hidden: float,
    load: float,
    call_ns: tuple[float, float],
) -> list[Source]:
    """`count` shapes from compute- to memory-bound, each with a share of `load` CPUs."""
    share = random.dirichlet(np.full(count, 2.0)) * 0.9 + 0.1 / count
    low, high = np.log(call_ns)
    bound = (np.arange(count) + random.uniform(0, 1, count)) / count
    times = np.exp(random.uniform(low, high, count))
    return [
        shape(
            random,
            f"shape {i}",
            hidden,
            load=load * share[i],
            call_ns=times[i],
            bound=bound[i],
        )
        for i in range(count)
    ]


def background(random: np.random.Generator, hidden: float, load: float) -> list[Source]:
    """A server's own threads: a page cleaner driven by the clock, a purge thread driven by the
    load.
    """
    clock_ns = random.uniform(2e8, 1e9)
    cleaner = load * random.uniform(0.3, 0.7)
    return [
        Source(
            Group("page cleaner", "background"),
            _any_activity(random, random.uniform(0.3, 0.9), hidden),
            cleaner,
            cleaner * clock_ns,
            pace="clock",
        ),
        Source(
            Group("purge", "background"),
            _any_activity(random, random.uniform(0.2, 0.8), hidden),
            load - cleaner,
            random.uniform(1e5, 1e6),
        ),
    ]


def rest(random: np.random.Generator, hidden: float, load: float) -> list[Source]:
    """Other processes with `load`, the kernel's threads, the tracer."""
    return [
        Source(
            Group("other", "other_processes"),
            _any_activity(random, random.uniform(0.1, 0.8), hidden),
            load,
            random.uniform(2e5, 3e6),
            swing=1.0,
        ),
        Source(
            Group("softirq", "kernel"),
            _any_activity(random, random.uniform(0.3, 0.7), hidden),
            random.uniform(0.001, 0.006),
            random.uniform(4e3, 1.5e4),
        ),
        Source(
            Group("tracer", "tracer"),
            _any_activity(random, random.uniform(0.2, 0.5), hidden),
            random.uniform(0.002, 0.008),
            1e5,
            pace="clock",
        ),
    ]


def server(random: np.random.Generator, cpus: int, hidden: float, load: float) -> list[Source]:
    """Four to eight shapes with most of `load`, a share of the machine; background; others."""
    busy = load * cpus
    sources = shapes(random, int(random.integers(4, 9)), hidden, busy * 0.8, (2e5, 2e7))
    sources += background(random, hidden, busy * random.uniform(0.02, 0.08))
    return sources + rest(random, hidden, busy * random.uniform(0.03, 0.15))


def analytic_and_points(
    random: np.random.Generator, topology: Topology, hidden: float
) -> list[Source]:
    """One or two shapes of scans of up to half a second on several CPUs, beside short look-ups."""
    cpus = topology.cpus
    points = shapes(random, int(random.integers(3, 6)), hidden, 0.12 * cpus, (2e5, 8e5))
    scans = []
    for i in range(int(random.integers(1, 3))):
        load = random.uniform(0.1, 0.25) * cpus
        call_ns = random.uniform(6e7, 5e8)
        bound = random.uniform(0.6, 1.0)
        scan = shape(random, f"scan {i}", hidden, load=load, call_ns=call_ns, bound=bound)
        workers = int(random.integers(1, min(4, cpus) + 1))
        scans.append(replace(scan, workers=workers, parts=1.0, pace="poisson"))
    sources = points + scans + background(random, hidden, 0.03 * cpus)
    return sources + rest(random, hidden, 0.05 * cpus)


def short_bursts(random: np.random.Generator, cpus: int, hidden: float) -> list[Source]:
    """Queries of less than a millisecond that come in bursts."""
    sources = shapes(
        random, int(random.integers(4, 7)), hidden, random.uniform(0.08, 0.2) * cpus, (8e4, 8e5)
    )
    sources = [replace(source, swing=random.uniform(1.5, 2.5), parts=1.2) for source in sources]
    sources += background(random, hidden, 0.02 * cpus)
    return sources + rest(random, hidden, 0.03 * cpus)


def neighbours(random: np.random.Generator, cpus: int, hidden: float) -> list[Source]:
    """A server beside processes that use as much as it does, from spinning to streaming."""
    sources = server(random, cpus, hidden, random.uniform(0.15, 0.3))
    for i, bound in enumerate(random.permutation([0.0, 0.5, 1.0])[: int(random.integers(2, 4))]):
        sources.append(
            Source(
                Group(f"neighbour {i}", "other_processes"),
                _any_activity(random, float(bound), hidden),
                random.uniform(0.08, 0.2) * cpus,
                random.uniform(1e6, 1e8),
                swing=random.uniform(0.5, 2.0),
            )
        )
    return sources


def siblings(random: np.random.Generator, topology: Topology, hidden: float) -> list[Source]:
    """Shapes that keep both threads of half the cores busy, and shapes that have cores to
    themselves.
    """
    cores = topology.cores
    shared = tuple(c + t * cores for c in range(cores // 2) for t in range(2))
    alone = tuple(range(cores // 2, cores))
    crowd = shapes(random, int(random.integers(2, 4)), hidden, len(shared) * 0.75, (3e5, 1e7))
    single = shapes(random, int(random.integers(2, 4)), hidden, len(alone) * 0.5, (3e5, 1e7))
    sources = [replace(s, cpus=shared, swing=0.6) for s in crowd]
    sources += [
        replace(s, cpus=alone, group=Group(f"alone {i}", "queries")) for i, s in enumerate(single)
    ]
    sources += background(random, hidden, 0.02 * topology.cpus)
    return sources + rest(random, hidden, 0.03 * topology.cpus)


def two_packages(random: np.random.Generator, topology: Topology, hidden: float) -> list[Source]:
    """Parallel queries with workers on both packages; the others run wherever their client is."""
    sources = server(random, topology.cpus, hidden, random.uniform(0.25, 0.45))
    # A scheduler spreads workers: consecutive CPUs in this order are on different packages.
    per = topology.cores_per_package
    spread = tuple(
        t * topology.cores + p * per + c
        for t in range(topology.threads_per_core)
        for c in range(per)
        for p in range(topology.packages)
    )
    for i, source in enumerate(sources[:3]):
        # Calls long enough that starting workers pays off.
        call_ns = max(source.call_ns, 5e6)
        workers = int(random.choice([2, 4]))
        sources[i] = replace(source, workers=workers, call_ns=call_ns, cpus=spread)
    return sources


def pair(random: np.random.Generator, cpus: int, hidden: float, load: float) -> list[Source]:
    """A server where each call of one shape is followed by a call of another."""
    sources = server(random, cpus, hidden, load)
    first = replace(sources[0], group=Group("pair first", "queries"), spread=0.2, parts=1.0)
    bound = float(random.choice([0.05, 0.95]))
    second = replace(
        shape(random, "pair second", hidden, load=first.load, call_ns=first.call_ns, bound=bound),
        spread=0.2,
        parts=1.0,
        after="pair first",
    )
    return [first, second, *sources[1:]]
