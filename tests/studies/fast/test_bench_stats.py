# SPDX-License-Identifier: Apache-2.0
"""The overhead benchmark: medians with intervals, verdicts, pairing, and generators' reports."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from bench.accuracy.figures import wilson
from bench.overhead import empty
from bench.overhead.clocks import Clocks
from bench.overhead.generator import REPORT, Interval
from bench.overhead.rounds import Samples
from bench.overhead.stats import Estimate, median_interval, ratio_of_medians, verdict
from bench.ycsb.workload import reports

from qjoule.errors import QjouleError


@pytest.mark.parametrize(
    ("runs", "low", "high", "coverage"),
    [(1, 0, 0, 0.0), (2, 0, 1, 0.5), (6, 0, 5, 1 - 2 / 64), (9, 1, 7, 1 - 20 / 512)],
)
def test_intervals_are_those_of_the_sign_tests_tables(
    runs: int, low: int, high: int, coverage: float
) -> None:
    found = median_interval([float(value) for value in reversed(range(runs))])
    assert found == Estimate((runs - 1) / 2, low, high, found.coverage, runs)
    assert found.coverage == pytest.approx(coverage)


def test_a_ratio_keeps_rounds_together() -> None:
    under = [0.01, 0.02, 0.03, 0.04, 0.05]
    same = ratio_of_medians([2 * value for value in under], under)
    assert same.median == same.low == same.high == pytest.approx(2.0)
    assert ratio_of_medians([0.02, 0.03, 0.02], [0.01, -0.01, -0.02]).high == math.inf


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [(0.0, 0.01, "met"), (0.005, 0.02, "within noise"), (0.011, 0.02, "missed")],
)
def test_a_verdict_follows_from_the_interval(low: float, high: float, word: str) -> None:
    assert verdict(Estimate((low + high) / 2, low, high, 0.95, 9), 0.01) == word


def test_wilson_is_the_published_interval() -> None:
    assert wilson(95, 100) == pytest.approx((0.8882, 0.9785), abs=1e-4)
    assert wilson(20, 20)[1] == 1.0
    with pytest.raises(ValueError, match="no trials"):
        wilson(0, 0)


def test_too_few_rounds_or_none_decide_nothing() -> None:
    assert verdict(median_interval([0.0, 0.0, 0.0]), 0.01) == "too few rounds"
    assert verdict(median_interval([0.0, 0.0, 0.0, 0.0]), 0.01) == "met"
    with pytest.raises(ValueError, match="nothing"):
        median_interval([])
    with pytest.raises(ValueError, match="same rounds"):
        ratio_of_medians([1.0], [1.0, 2.0])


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


def test_reports_of_the_generators() -> None:
    lines = [
        b"[ 7s ] thds: 2 tps: 90045.12 qps: 90045.12 (r/w/o: 1/0/0) lat (ms,95%): 0.03\n",
        b"progress: 3.0 s, 40212.9 tps, lat 0.050 ms stddev 0.011, 0 failed\n",
        b"Threads started!\n",
    ]
    found = [REPORT.match(line) for line in lines]
    assert [one and float(one[1]) for one in found] == [90045.12, 40212.9, None]


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
    with pytest.raises(QjouleError, match=r"operations fail: UPDATE_ERROR - .*Count: 1"):
        reports()(b"UPDATE_ERROR - Takes(s): 0.1, Count: 1, OPS: 10.7\n", 1.0)
