# SPDX-License-Identifier: Apache-2.0
"""An open loop's queue against a reference: c connections, first come first served, at
most K wait.
"""

from __future__ import annotations

import heapq

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qjoule.studies.workloads.arrivals import ArrivalQueue, arrivals_s

TIMES = st.lists(st.integers(0, 1_000), min_size=1, max_size=60).map(sorted)
SERVICES = st.lists(st.integers(0, 200), min_size=60, max_size=60)


def through_the_queue(
    arrivals: list[int], services: list[int], connections: int, capacity: int
) -> tuple[dict[int, int], list[int]]:
    """When each operation is sent, and which are dropped; connections serve as in `open_loop`."""
    queue = ArrivalQueue(arrivals, capacity)
    free = [0] * connections
    sent = {}
    while free:
        now = heapq.heappop(free)
        number = queue.take(now)
        if number is not None:
            sent[number] = max(now, arrivals[number])
            heapq.heappush(free, sent[number] + services[number])
    return sent, queue.dropped


def reference(
    arrivals: list[int], services: list[int], connections: int, capacity: int
) -> tuple[dict[int, int], list[int]]:
    """Arrival by arrival: G/G/c/K by the times at which connections become free."""
    free = [0] * connections
    sent: dict[int, int] = {}
    dropped = []
    for number, arrival in enumerate(arrivals):
        waiting = sum(start > arrival for start in sent.values())
        if free[0] > arrival and waiting >= capacity:
            dropped.append(number)
            continue
        sent[number] = max(arrival, heapq.heappop(free))
        heapq.heappush(free, sent[number] + services[number])
    return sent, dropped


@given(TIMES, SERVICES, st.integers(1, 4), st.integers(1, 5))
def test_operations_are_sent_as_the_reference_says(
    arrivals: list[int], services: list[int], connections: int, capacity: int
) -> None:
    arguments = (arrivals, services, connections, capacity)
    assert through_the_queue(*arguments) == reference(*arguments)


@given(TIMES, SERVICES, SERVICES, st.integers(1, 4), st.integers(1, 5))
def test_no_service_time_moves_an_arrival(
    arrivals: list[int], one: list[int], other: list[int], connections: int, capacity: int
) -> None:
    for services in (one, other, [service * 100 for service in one]):
        sent, dropped = through_the_queue(arrivals, services, connections, capacity)
        assert sorted([*sent, *dropped]) == list(range(len(arrivals)))
        assert all(start >= arrivals[number] for number, start in sent.items())
        order = sorted(sent, key=lambda number: (sent[number], number))
        assert order == sorted(sent)  # first come, first served


@given(
    st.lists(st.sampled_from([0.0, 1.0, 7.5, 100.0]), min_size=1, max_size=8),
    st.sampled_from([0.5, 2.0]),
    st.sampled_from(["poisson", "uniform"]),
    st.integers(0, 1_000),
)
def test_arrivals_are_in_order_and_never_where_there_is_no_load(
    per_s: list[float], step_s: float, kind: str, seed: int
) -> None:
    times = arrivals_s(per_s, step_s, kind, np.random.default_rng(seed))
    assert (np.diff(times) >= 0).all()
    steps = np.minimum((times / step_s).astype(int), len(per_s) - 1)
    assert all(per_s[step] > 0 for step in steps[np.abs(times / step_s % 1) > 1e-9])
    expected = sum(per_s) * step_s
    assert abs(len(times) - expected) <= (1 if kind == "uniform" else 6 * expected**0.5 + 6)
