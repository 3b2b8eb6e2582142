# SPDX-License-Identifier: Apache-2.0
"""The overhead benchmark: medians with intervals, verdicts, pairing, and generators' reports."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from bench.overhead import empty
from bench.ycsb.workload import reports

from qjoule.errors import QjouleError

ROOT = Path(__file__).resolve().parents[3]


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
