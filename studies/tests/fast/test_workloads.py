# SPDX-License-Identifier: Apache-2.0
"""Workloads without servers: the open loop, load profiles, and plans that operators must have.

Options are refused before a server is asked, and servers that do not answer are reported.
"""

from __future__ import annotations

import heapq
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qjoule.errors import QjouleError, UsageError
from qjoule_studies import goycsb
from qjoule_studies.workload import Target, Value
from qjoule_studies.workloads import workload
from qjoule_studies.workloads.load_process import COMMANDS
from qjoule_studies.workloads.load_profile import (
    Offered,
    Profile,
    outcome,
    parse_profile,
    read_profile,
)
from qjoule_studies.workloads.open_loop import ArrivalQueue, arrivals_s, open_loop
from qjoule_studies.workloads.plan_check import Wanted, check, describe
from qjoule_studies.workloads.ycsb import DEFAULTS, settings

MS = 1_000_000


def test_a_slow_server_moves_no_arrival_and_what_overflows_is_an_error() -> None:
    arrivals = np.arange(100) * 2 * MS
    begin_ns = time.monotonic_ns()
    sent = open_loop(arrivals, [lambda _: time.sleep(0.05)] * 2, 3, begin_ns, 10**12)
    assert (sent.arrivals_ns == arrivals).all()
    assert (sent.sent_ns >= arrivals)[~sent.dropped].all()
    assert sent.dropped.any()
    assert ((sent.sent_ns == -1) == sent.dropped).all()
    result = outcome([(sent, np.zeros(100, np.int8))], COMMANDS, Offered(0.2, 0.0))
    assert result.operations + result.errors == 100
    assert result.errors == sent.dropped.sum()
    assert any("arrived at a full queue" in note for note in result.notes)
    assert any("1 ms after their arrival" in note for note in result.notes)


def test_a_good_profile(tmp_path: Path) -> None:
    file = tmp_path / "day.csv"
    text = "\ufefft_s, percent\r\n0,10\r\n60,95.5\r\n120,0\r\n"
    file.write_text(text, encoding="utf-8")
    profile = read_profile(file)
    assert profile == Profile(60.0, (10.0, 95.5, 0.0), "percent")
    assert profile.seconds == 180
    assert profile.per_s(200.0) == (20.0, 191.0, 0.0)
    assert parse_profile("t_s,per_s\n0,10\n0.1,5\n0.2,0").per_s(0.0) == (10, 5, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("t_s,watts\n0,1\n1,1", "line 1: is 't_s,watts'"),
        ("t_s,percent\n0,10", "line 2: the profile ends"),
        ("t_s,percent\n0,10\n60,10\n180,10", "line 4: there is a gap: t_s is 180, 120 s after"),
        ("t_s,percent\n0,10\n60,-1", "line 3: percent is -1: give 0 to 1000"),
        ("t_s,percent\n0,10\n60,nan", "line 3: percent is 'nan': give a finite number"),
        ("t_s,percent\n0,ten", "line 2: percent is 'ten': give a number"),
        ("t_s,percent\n0,10\n60,10\n30,10", "line 4: t_s is 30, and 60 in the line before: sort"),
    ],
)
def test_profiles_that_make_no_sense(text: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_profile(text)
    assert str(refused.value).startswith(message)


#: Dense enough that operations wait, and overflow.
TIMES = st.lists(st.integers(0, 300), min_size=1, max_size=60).map(sorted)
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
@example([0, 1, 2, 3, 4, 5, 6], [2, 100, *[1] * 58], 1, 2)
def test_operations_are_sent_as_the_reference_says(
    arrivals: list[int], services: list[int], connections: int, capacity: int
) -> None:
    arguments = (arrivals, services, connections, capacity)
    sent, dropped = through_the_queue(*arguments)
    assert (sent, dropped) == reference(*arguments)
    assert sorted([*sent, *dropped]) == list(range(len(arrivals)))
    assert sorted(sent, key=lambda number: (sent[number], number)) == sorted(sent)


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


HASH_JOIN = Wanted("Hash Join", never=frozenset({"Merge Join", "Nested Loop"}))


def node(kind: str, *children: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"Node Type": kind, "Plans": list(children), **more}


def gather(workers: int, *children: dict[str, Any], **more: Any) -> dict[str, Any]:
    return node("Gather", *children, **{"Workers Planned": workers, **more})


SCAN = node("Seq Scan", **{"Relation Name": "t"})
JOIN = node("Hash Join", SCAN, node("Hash", SCAN))


@pytest.mark.parametrize(
    ("plan", "workers"),
    [
        (node("Nested Loop", JOIN, SCAN), 0),  # another join too
        (JOIN, 2),  # not parallel
        (gather(2, JOIN), 0),  # parallel
        (node("Hash Join", gather(2, SCAN), SCAN), 2),  # the join itself is not parallel
    ],
)
def test_other_plans_are_refused(plan: dict[str, Any], workers: int) -> None:
    with pytest.raises(QjouleError, match="did not plan a Hash Join") as refused:
        check(plan, HASH_JOIN, workers)
    assert describe(plan) in str(refused.value)


WRONG: dict[str, list[tuple[str, Value]]] = {
    "ycsb": [
        ("workload", "G"),
        ("workload", "\x1b[2J"),
        ("record_count", 1.5),
        ("operations", 10**18),
        ("threads", 100_000),
        ("colour", "red"),
    ],
    "twitter": [
        ("form", "best"),
        ("rows", 999),
        ("seconds", 0),
    ],
    "load": [
        ("operation", "delete"),
        ("seconds", 0),
        ("connections", 0),
        ("rows", 1),
        ("unheard", 1),
    ],
    "operators": [
        ("operator", "magic"),
        ("parallel_workers", 1.5),
        ("work_mem", "1MB; DROP TABLE x"),
        ("settings", "jit=on; jit=off"),
        ("settings", "x'; DROP=1"),
        ("unheard", 1),
    ],
}


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [(name, *wrong) for name, every in WRONG.items() for wrong in every],
)
def test_options_that_make_no_sense_are_refused(name: str, option: str, value: Value) -> None:
    target = Target("postgres", port=1, user="u")
    with pytest.raises(UsageError, match=option):
        workload(name).run(target, {**workload(name).defaults, option: value})


def test_options_that_do_not_fit_each_other_are_refused() -> None:
    with pytest.raises(UsageError, match="threads"):
        settings({**DEFAULTS, "threads": 10, "operations": 9})


@pytest.mark.parametrize("flavour", ["redis", "mariadb", "postgres"])
@pytest.mark.parametrize("name", ["ycsb", "twitter"])
def test_a_server_that_does_not_answer_is_named(
    name: str, flavour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(goycsb, "installed", lambda: Path("/go-ycsb"))
    with pytest.raises(QjouleError, match=f"{flavour} at 127.0.0.1:1 does not answer"):
        workload(name).prepare(Target(flavour, port=1, user="u"), workload(name).defaults)
