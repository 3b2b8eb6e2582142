# SPDX-License-Identifier: Apache-2.0
"""Further counters of segments: a software clock and page faults, which any machine has."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from qjoule.contract import COUNTER_NAMES, MORE_COUNTERS, WHOLE, Block, Loss, Mode
from tracing.tracer import Session, tracing

pytestmark = [pytest.mark.beside, pytest.mark.root]

CPU_CLOCK, PAGE_FAULTS = "more=1:0", "more=1:2"
PAGES = 3000
FAULT = f"""
import mmap
room = mmap.mmap(-1, {PAGES} * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE)
room.madvise(mmap.MADV_NOHUGEPAGE)
for page in range({PAGES}):
    room[page * mmap.PAGESIZE] = 1
"""


def _seen(program: str, *counters: str) -> tuple[Session, int]:
    """What a tracer recorded of a program, and its pid."""
    options = [word for counter in counters for word in ("--counter", counter)]
    with tracing(Mode.RECORD, "--energy", "none", "--ring-mb", "32", *options) as session:
        load = subprocess.Popen([sys.executable, "-I", "-c", program])
        assert load.wait(60) == 0
        assert session.finish() == ""
    return session, load.pid


def test_each_segment_has_what_was_counted_in_it() -> None:
    session, pid = _seen(FAULT, PAGE_FAULTS, CPU_CLOCK, "cycles=1:0")
    told = int(session.records(Block.HELLO)["counters"][0])
    assert told == 1 | 3 << len(COUNTER_NAMES)
    assert not session.records(Block.SEGMENT).size
    assert not session.records(Block.SEGMENT_COUNTERS).size
    records = session.records(Block.SEGMENT_MORE)
    segments = records["counted"]["segment"]
    mine = segments["tgid"] == pid
    assert mine.any()
    assert (records["shares"][mine, :2] == WHOLE).all()
    assert not records["shares"][:, 2:].any()
    assert not records["more"][:, 2:].any()
    faults = int(records["more"][mine, 0].sum())
    assert PAGES <= faults < 5 * PAGES
    lengths = (segments["t1_ns"] - segments["t0_ns"])[mine].astype(np.float64)
    clock = int(records["more"][mine, 1].sum())
    assert clock == pytest.approx(lengths.sum(), rel=0.05)
    assert clock == pytest.approx(int(records["counted"]["counters"][mine, 0].sum()), rel=0.05)
    causes = set(session.records(Block.LOSS)["cause"].tolist())
    assert Loss.MULTIPLEXED not in causes


def test_they_need_no_other_counters() -> None:
    """And nearly all page faults of a program that writes to its memory are in user space."""
    session, pid = _seen(FAULT, PAGE_FAULTS + ":u", PAGE_FAULTS + ":k", PAGE_FAULTS)
    records = session.records(Block.SEGMENT_MORE)
    segments = records["counted"]["segment"]
    assert not segments["valid"].any()
    mine = records["more"][segments["tgid"] == pid].sum(axis=0)
    user, kernel, both = mine[:3].tolist()
    assert user >= PAGES
    assert kernel < PAGES / 10
    assert user + kernel == both


def test_as_many_as_there_is_room_for() -> None:
    session, pid = _seen("", *[PAGE_FAULTS] * MORE_COUNTERS)
    records = session.records(Block.SEGMENT_MORE)
    mine = records["more"][records["counted"]["segment"]["tgid"] == pid].sum(axis=0)
    assert mine.min() > 0
    assert mine.min() == mine.max()
