# SPDX-License-Identifier: Apache-2.0
"""Synthetic servers: clients call statements of several shapes, beside background and neighbours.

Calls arrive as a Poisson process, from clients that wait for their reply, or by the clock. The rate
changes over time. Each CPU serves its queue in order of arrival.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from studies.bench.accuracy.activity import Activity
from studies.bench.accuracy.physics import Stretches
from studies.bench.accuracy.recording import F64, I64, Group
from studies.bench.accuracy.tracer import Work

SLICE_NS = 3_000_000  #: the scheduler's time slice
SHORTEST_NS = 1_000  #: minimum length of a slice, after a context switch


@dataclass(frozen=True)
class Source:
    """Calls of one shape, or the slices of one thread that serves no query.

    `load` is the mean number of CPUs that it keeps busy. A call takes `call_ns` of CPU time,
    log-normal with `spread`, on average in `parts` slices with `wait_ns` between them, on each of
    `workers` CPUs at once. `pace`: "poisson", "closed" (clients that think between calls), "clock".
    `swing`: standard deviation over mean of the rate. `cpus`: where it may run, none = anywhere.
    `after` names a source earlier in the list; a call of this source follows each call of that one.
    """

    group: Group
    activity: Activity
    load: float
    call_ns: float
    spread: float = 0.4
    parts: float = 1.0
    wait_ns: float = 200_000.0
    workers: int = 1
    pace: str = "poisson"
    swing: float = 0.5
    cpus: tuple[int, ...] = ()
    after: str = ""

    @property
    def stretches_per_s(self) -> float:
        """Expected number of slices per second."""
        per_call = max(self.parts, self.call_ns / self.workers / SLICE_NS) * self.workers
        return self.load * 1e9 / self.call_ns * per_call


@dataclass(frozen=True)
class _Calls:
    """When calls arrive and what each needs, all (n,)."""

    t_ns: F64
    client: I64
    need_ns: F64


@dataclass(frozen=True)
class _Demand:
    """Requested slices, all (n,): `call` numbers a source's calls from 0."""

    t_ns: F64
    need_ns: F64
    cpu: I64
    call: I64


def run(
    random: np.random.Generator,
    sources: Sequence[Source],
    cpus: int,
    span_ns: tuple[int, int],
    variation: float,
) -> Work:
    """Draws which thread runs when on a machine of `cpus` CPUs.

    Calls, and the slices of a call, vary by `variation` around the activity of their source.
    """
    demands, activities, groups, queries = [], [], [], []
    calls_by_group: dict[str, _Calls] = {}
    number = 0
    for index, source in enumerate(sources):
        calls = _follow(calls_by_group[source.after], random, source) if source.after else None
        calls = calls or _arrivals(random, source, span_ns)
        calls_by_group[source.group.name] = calls
        demand = _stretches(random, source, calls, cpus)
        no_variant = np.zeros(len(calls.t_ns), np.int64)
        own = source.activity.take(no_variant).varied(random, variation)
        activities.append(own.take(demand.call).varied(random, variation))
        groups.append(np.full(len(demand.call), index))
        is_query = source.group.kind == "queries"
        queries.append(demand.call + number if is_query else np.full(len(demand.call), -1))
        number += len(no_variant) if is_query else 0
        demands.append(demand)
    t_ns, need_ns = (np.concatenate([getattr(d, n) for d in demands]) for n in ("t_ns", "need_ns"))
    cpu = np.concatenate([d.cpu for d in demands])
    rows, t0_ns, t1_ns = _serve(t_ns, need_ns, cpu, span_ns)
    return Work(
        stretches=Stretches(t0_ns, t1_ns, cpu[rows], Activity.join(activities).take(rows)),
        group=np.concatenate(groups)[rows],
        query=np.concatenate(queries)[rows],
        groups=tuple(source.group for source in sources),
    )


def _arrivals(random: np.random.Generator, source: Source, span_ns: tuple[int, int]) -> _Calls:
    """Calls over the whole span, at a rate that changes."""
    begin_ns, end_ns = span_ns
    span = end_ns - begin_ns
    rate = source.load / source.call_ns  # calls per nanosecond
    expected = rate * span
    if source.pace == "closed":
        clients = max(1, round(source.load * random.uniform(2, 8)))
        per_client = int(expected / clients * 1.3) + 4
        client = np.repeat(np.arange(clients), per_client)
        need = _needs(random, source, len(client))
        think = random.exponential(max(clients / rate - source.call_ns, 1.0), len(client))
        t = (np.cumsum((think + need).reshape(clients, per_client), axis=1)).reshape(-1) - need
    else:
        count = max(1, int(random.poisson(expected) if source.pace == "poisson" else expected))
        if source.pace == "poisson":
            t = np.sort(random.uniform(0, span, count))
        else:
            t = (np.arange(count) + random.uniform(0.45, 0.55, count)) * (span / count)
        client, need = random.integers(0, 64, count), _needs(random, source, count)
    inside = t < span
    t, client, need = t[inside], client[inside], need[inside]
    if source.pace != "clock" and source.swing > 0:
        t = _warp(random, t, span, source.swing)
    return _Calls(begin_ns + t, client, need)


def _follow(before: _Calls, random: np.random.Generator, source: Source) -> _Calls:
    """A call after each of `before`, by the same client, once that call has finished."""
    need = _needs(random, source, len(before.t_ns))
    return _Calls(before.t_ns + before.need_ns + 20_000, before.client, need)


def _needs(random: np.random.Generator, source: Source, count: int) -> F64:
    """CPU time of each call, with mean `call_ns`."""
    mean = np.log(source.call_ns) - source.spread**2 / 2
    return np.maximum(random.lognormal(mean, source.spread, count), SHORTEST_NS)


def _warp(random: np.random.Generator, t: F64, span: float, swing: float) -> F64:
    """Maps times of a steady process to one whose rate changes every 0.1 to 2 s."""
    dwell = random.uniform(1e8, 2e9)
    steps = max(2, int(span / dwell))
    rate = random.gamma(1 / swing**2, 1.0, steps) + 1e-9
    passed = np.append(0.0, np.cumsum(rate)) / rate.sum() * span
    return np.interp(t, passed, np.linspace(0, span, steps + 1))


def _stretches(random: np.random.Generator, source: Source, calls: _Calls, cpus: int) -> _Demand:
    """Splits every call into slices of at most a time slice, on the CPUs of its client."""
    calls_n, workers = len(calls.t_ns), source.workers
    call = np.repeat(np.arange(calls_n), workers)
    worker = np.tile(np.arange(workers), calls_n)
    need = calls.need_ns[call] / workers * random.uniform(0.8, 1.2, len(call))
    parts = 1 + random.poisson(max(source.parts - 1, 0.0), len(call))
    parts = np.maximum(parts, np.ceil(need / SLICE_NS).astype(np.int64))
    allowed = np.array(source.cpus or range(cpus))
    place = calls.client[call] + worker
    moved = random.random(len(call)) < 0.15
    place[moved] = random.integers(0, len(allowed), int(moved.sum()))
    row = np.repeat(np.arange(len(call)), parts)
    weight = random.uniform(0.5, 1.5, len(row))
    first = np.cumsum(parts) - parts
    total_weight = np.bincount(row, weight, len(call))
    part_need = np.maximum(need[row] * weight / total_weight[row], SHORTEST_NS)
    # A slice that ended because its time was up waits only for the CPU; the others for a disk or a
    # lock.
    waits = random.exponential(source.wait_ns, len(row)) * (parts[row] * SLICE_NS > 2 * need[row])
    since = np.cumsum(part_need + waits) - (part_need + waits)
    at = calls.t_ns[call][row] + since - since[first][row]
    return _Demand(at, part_need, allowed[place % len(allowed)][row], call[row])


def _serve(t_ns: F64, need_ns: F64, cpu: I64, span_ns: tuple[int, int]) -> tuple[I64, I64, I64]:
    """Rows that ran, with begin and end: each CPU serves in order of arrival (Lindley, 1952)."""
    begin_ns, end_ns = span_ns
    rows, starts, ends = [], [], []
    order = np.lexsort((t_ns, cpu))
    bounds = np.flatnonzero(np.diff(cpu[order], prepend=-1, append=-1))
    for a, b in pairwise(bounds):
        of_worker = order[a:b]
        need = np.rint(need_ns[of_worker]).astype(np.int64)
        at = np.maximum(np.rint(t_ns[of_worker]).astype(np.int64), begin_ns)
        done = np.cumsum(need)
        end = done + np.maximum.accumulate(at - (done - need))
        fits = end - need < end_ns - SHORTEST_NS
        rows.append(of_worker[fits])
        starts.append((end - need)[fits])
        ends.append(np.minimum(end[fits], end_ns))
    if not rows:
        nothing = np.zeros(0, np.int64)
        return nothing, nothing, nothing
    return np.concatenate(rows), np.concatenate(starts), np.concatenate(ends)
