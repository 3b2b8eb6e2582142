# SPDX-License-Identifier: Apache-2.0
"""What makes a flight recorder save by itself, on a synthetic stream of known energy."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest

import fake_tracer as ft
from captured_trace import RingTrace, joined, ring_trace
from qjoule.contract import Block
from qjoule.live.triggers import Judge
from qjoule.stream.blocks import Stream, encode_block

KEEP_S = 8.0  #: segments of one second
UNIT_J = 2.0**-14
REST_W, CORE_W = 2.0, 10.0


def _with_energy(pieces: list[bytes], burst: range, factor: int) -> bytes:
    """The stream with a package's energy: at rest, and by busy core, which draws `factor` times as
    much in some windows.
    """
    out, window, joules, busy_ns = [], 0, 0.0, 0
    for block in Stream(io.BytesIO(joined(pieces))):
        records = block.records
        if block.kind is Block.SEGMENT:
            busy_ns += int((records["t1_ns"] - records["t0_ns"]).sum())
        if block.kind is Block.ENERGY:
            window += 1
            joules += REST_W * 0.02 + CORE_W * busy_ns * 1e-9 * (factor if window in burst else 1)
            busy_ns = 0
            records = records.copy()
            records["raw"][records["domain"] == 0] = round(joules / UNIT_J)
        if block.kind is Block.FLUSH:
            out.append(encode_block(block.kind, t_ns=block.t_ns))
        else:
            out.append(encode_block(block.kind, records, t_ns=block.t_ns, text=block.text))
    return joined(out)


class _Judged:
    """A ring whose segments are judged as they are whole."""

    def __init__(self, ring: RingTrace, *, shapes: bool, query_j: float | None) -> None:
        self.found: list[tuple[str, str]] = []
        self.said: list[str] = []
        self.judge = Judge(
            ring.trace,
            shapes=shapes,
            query_j=query_j,
            patience_s=KEEP_S / 2,
            found=lambda why, what: self.found.append((why, what)),
            say=self.said.append,
        )
        ring.capture.whole = self._add
        self.judge.start()

    def _add(self, *segment: object) -> None:
        """One at a time: a test's stream is faster than a second a second."""
        self.judge.add(*segment)  # type: ignore[arg-type] # as the capture gives it
        end = time.monotonic() + 60
        while self.judge._waiting.qsize() and time.monotonic() < end:
            time.sleep(0.01)


def _traffic(seconds: float) -> list[bytes]:
    """On the first two of three CPUs."""
    pieces = ft.traffic(seconds, per_second=400)
    pieces[0] = ft.head(3) + pieces[0][len(ft.head(2)) :]
    return pieces


@pytest.mark.parametrize("factor", [1, 5])
def test_a_shape_that_leaves_its_own_interval(tmp_path: Path, factor: int) -> None:
    stream = _with_energy(_traffic(16.0)[:-1], range(650, 700), factor)
    with ring_trace(tmp_path / "r", KEEP_S) as ring:
        judged = _Judged(ring, shapes=True, query_j=None)
        ring.feed(stream)
        judged.judge.close()
    assert judged.said == []
    assert judged.judge.left_out == 0
    if factor == 1:
        assert judged.found == []
        return
    assert {why for why, _ in judged.found} == {"shape"}
    assert 1 <= len(judged.found) <= 10  # five shapes; the burst may lie in two segments
    assert "J/call, before" in judged.found[0][1] and "select x" in judged.found[0][1]


def test_a_query_over_several_segments_counts_as_a_whole(tmp_path: Path) -> None:
    """Its energy is added up; it is told once, with its text, when it has ended."""
    begin, end = 100, 230  # windows: from 2 s to 4.6 s
    pieces = _traffic(9.0)[:-1]
    serving = {"query": 900_001, "pid": 107, "tgid": 100, "server": 1, "owner_kind": 1}
    for window in range(begin, end):
        t0_ns = ft.BEGIN_NS + window * 20 * ft.MS
        ran = ft.segment(t0_ns, t0_ns + 20 * ft.MS, 107, cpu=2) | serving
        pieces[window + 1] = ft.block(Block.SEGMENT, ran) + pieces[window + 1]
    row = {"query": 900_001, "shape": 3, "session": 107, "pid": 107, "tgid": 100, "server": 1}
    row |= {
        "begin_ns": ft.BEGIN_NS + begin * 20 * ft.MS,
        "executions": 1,
        "attach_mode": 1,
        "command": 1,
    }
    row |= {"end_ns": ft.BEGIN_NS + end * 20 * ft.MS - 1}
    pieces[end] = ft.block(Block.QUERY, row) + pieces[end]
    whole_j = 2.6 * CORE_W
    with ring_trace(tmp_path / "r", KEEP_S) as ring:
        judged = _Judged(ring, shapes=False, query_j=whole_j / 2)
        ring.feed(_with_energy(pieces, range(0), 1))
        judged.judge.close()
    assert judged.said == []
    ((why, what),) = judged.found
    assert why == "query"
    assert "select xxx" in what
    told_j = float(what.split(" J")[0].rsplit(" ", 1)[1])
    assert whole_j / 2 < told_j < whole_j * 1.3
