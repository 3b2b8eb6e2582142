# SPDX-License-Identifier: Apache-2.0
"""The overhead benchmark: medians with intervals, verdicts, pairing, and generators' reports."""

from __future__ import annotations

import re
from pathlib import Path

from bench.overhead import empty

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
