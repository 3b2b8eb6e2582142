# SPDX-License-Identifier: Apache-2.0
"""The benchmark's pairing, the generators' reports, and the hooks of the empty programs."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from bench.overhead import empty
from bench.overhead.clocks import Clocks
from bench.overhead.generator import REPORT, Interval
from bench.overhead.rounds import Samples, orders
from bench.ycsb.workload import reports

from qjoule.errors import QjouleError

ROOT = Path(__file__).resolve().parents[3]


def interval(transactions: float, load_ns: int, tracing_ns: int = 0) -> Interval:
    spent = Clocks(server=load_ns, tracer=tracing_ns, machine=load_ns + 2 * tracing_ns)
    return Interval(1.0, transactions, spent)


def test_a_mode_is_held_against_both_sides() -> None:
    samples = Samples()
    before, after = [interval(1000, 2 * 10**9)], [interval(600, 2 * 10**9)]
    samples.add(before, [interval(720, 1_800_000_000, 200_000_000)], after)
    assert samples.throughput_lost == [pytest.approx(1 - 720 / 800)]
    beside = (2e6 + 2e9 / 600) / 2
    assert samples.cpu_lost == [pytest.approx(1 - beside / (2e9 / 720))]
    assert samples.tracing_share == [pytest.approx(0.1)]


def test_every_mode_comes_first_equally_often() -> None:
    modes = ("empty", "record", "live")
    drawn = list(orders(modes, 9))
    assert all(sorted(order) == sorted(modes) for order in drawn)
    assert Counter(order[0] for order in drawn) == dict.fromkeys(modes, 3)
    assert len({tuple(order) for order in drawn}) > 3


@pytest.mark.parametrize(
    ("line", "rate"),
    [
        (
            b"[ 7s ] thds: 2 tps: 90045.12 qps: 90045.12 (r/w/o: 1/0/0) lat (ms,95%): 0.03\n",
            90045.12,
        ),
        (b"progress: 3.0 s, 40212.9 tps, lat 0.050 ms stddev 0.011, 0 failed\n", 40212.9),
        (b"Threads started!\n", None),
        (b"pgbench (15.8)\n", None),
    ],
)
def test_reports_of_the_generators(line: bytes, rate: float | None) -> None:
    found = REPORT.match(line)
    assert (float(found[1]) if found else None) == rate


def test_empty_programs_stand_on_the_hooks_of_the_real_ones() -> None:
    section = re.compile(r'SEC\("\??tp_btf/(\w+)"\)')
    real = {
        name
        for path in (ROOT / "bpf").glob("*/*.bpf.[ch]")
        for name in section.findall(path.read_text())
    } - {"sched_process_free"}  # of the variant for early kernels alone
    assert real == {*empty.ALWAYS, empty.SOCKET, empty.REDIS_SEND}
    assert set(section.findall((empty.HERE / "empty.bpf.c").read_text())) == real


def test_reports_of_ycsb_are_sums_from_the_beginning() -> None:
    read = reports()
    lines = [
        b"READ   - Takes(s): 1.0, Count: 1000, OPS: 1001.2, Avg(us): 80, 99th(us): 200\n",
        b"TOTAL  - Takes(s): 1.0, Count: 2010, OPS: 2010.0, Avg(us): 80, 99th(us): 200\n",
        b"UPDATE - Takes(s): 1.0, Count: 1010, OPS: 1009.9, Avg(us): 80, 99th(us): 200\n",
        b"READ   - Takes(s): 2.0, Count: 1900, OPS: 1001.2, Avg(us): 80, 99th(us): 200\n",
        b"UPDATE - Takes(s): 2.0, Count: 2010, OPS: 1009.9, Avg(us): 80, 99th(us): 200\n",
    ]
    assert [read(line, 1.0) for line in lines] == [None, None, 2010.0, None, 1900.0]


def test_operations_of_ycsb_that_fail_end_the_measurement() -> None:
    with pytest.raises(QjouleError, match=r"operations fail: UPDATE_ERROR - .*Count: 1"):
        reports()(b"UPDATE_ERROR - Takes(s): 0.1, Count: 1, OPS: 10.7\n", 1.0)
