# SPDX-License-Identifier: Apache-2.0
"""Hardware counters on arm64, on a machine where each instruction takes one cycle of 1 ns.

Nothing ever stalls it. `record --counters` adds user and kernel instructions, stalls, and events
that take turns.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nightly.vm.support.machine import Run
from nightly.vm.support.streams import Recorded, load, recorded
from qjoule.contract import MORE_COUNTERS, WHOLE, Block, Loss
from qjoule_studies.characterise import Estimate, MetricSums, metrics_of
from qjoule_studies.counted import events_in, events_of

pytestmark = pytest.mark.timeout(1800)

CYCLES, INSTRUCTIONS = 1, 2
NAMES = ("instructions:u", "instructions:k", "stalled-cycles-frontend")
RAW = tuple(f"turn{i}" for i in range(MORE_COUNTERS))  #: each is INST_RETIRED


@pytest.fixture(scope="module")
def counted(arm64: Run) -> Recorded:
    return recorded(arm64, "counted")


def test_every_segment_has_its_cycles_and_instructions(arm64: Run, counted: Recorded) -> None:
    """As many as nanoseconds, up to the delay between reading the time and reading the counters.

    So a load has as many as its CPU time, within 1 %: they include its start and its end.
    """
    records = counted.records(Block.SEGMENT_COUNTERS)
    segments, counters = records["segment"], records["counters"].astype(np.float64)
    lengths_ns = (segments["t1_ns"] - segments["t0_ns"]).astype(np.float64)
    assert int(counted.records(Block.HELLO)["counters"][0]) == CYCLES | INSTRUCTIONS
    assert len(segments) > 50
    assert not counted.records(Block.SEGMENT).size
    assert (segments["valid"] == CYCLES | INSTRUCTIONS).all()
    assert (segments["counted"] == WHOLE).all()
    assert np.abs(counters[:, 0] - lengths_ns).max() < 30_000
    assert counters[:, 0].sum() == pytest.approx(lengths_ns.sum(), rel=0.005)
    assert np.abs(counters[:, 1] - counters[:, 0]).max() < 1_000
    assert not counted.loss.keys() & {Loss.COUNTER, Loss.MULTIPLEXED}
    one = load(arm64, "counted")
    cycles = counters[segments["tgid"] == one.pid, 0].sum()
    assert cycles == pytest.approx(one.cpu_ns, rel=0.01)


def test_a_counter_that_the_machine_lacks_is_said_and_not_zero(arm64: Run) -> None:
    words = arm64.text("absent.err")
    assert words.startswith("qjoule-tracer: counter llc-misses is not available: ")
    stream = recorded(arm64, "absent")
    assert int(stream.records(Block.HELLO)["counters"][0]) == CYCLES
    segments = stream.records(Block.SEGMENT_COUNTERS)["segment"]
    assert segments.size
    assert (segments["valid"] == CYCLES).all()


def characterised(
    stream: Recorded, directory: Path, names: tuple[str, ...], pid: int
) -> dict[str, Estimate]:
    """The ratios of a process, from the trace that `qjoule record` makes of the stream."""
    trace = stream.trace(directory, names)
    owners = trace.pandas("owners")
    mine = owners[owners["tgid"] == pid]["owner"].tolist()
    table = trace.table("segments")
    table = table.filter(np.isin(table.column("owner").to_numpy(), mine))
    lengths = table.column("t1_ns").to_numpy() - table.column("t0_ns").to_numpy()
    sums = MetricSums(metrics_of(events_of(trace)), 1)
    group = np.zeros(table.num_rows, np.int64)
    sums.add(group, lengths.astype(np.float64), events_in(table, names))
    return sums.estimates(0)


def test_user_and_kernel_are_all_of_the_instructions(arm64: Run, tmp_path: Path) -> None:
    stream, one = recorded(arm64, "more"), load(arm64, "more")
    records = stream.records(Block.SEGMENT_MORE)
    mine = records[records["counted"]["segment"]["tgid"] == one.pid]
    assert len(mine) > 10
    assert (mine["shares"][:, : len(NAMES)] == WHOLE).all()
    user, kernel, _ = mine["more"][:, : len(NAMES)].sum(axis=0).tolist()
    instructions = int(mine["counted"]["counters"][:, 1].sum())
    assert user + kernel == pytest.approx(instructions, rel=0.001)
    assert not stream.loss.keys() & {Loss.COUNTER, Loss.MULTIPLEXED}
    found = characterised(stream, tmp_path / "trace", NAMES, one.pid)
    assert found["ipc"].value == pytest.approx(1, rel=0.01)
    assert found["frequency_ghz"].value == pytest.approx(1, rel=0.01)
    assert 0 < found["kernel_instruction_share"].value < 0.3
    assert found["stall_frontend_share"].value == 0


def test_events_that_take_turns_are_scaled_and_said(arm64: Run, tmp_path: Path) -> None:
    """Each counts instructions, of which there are 1000 per 1000; that must be the result."""
    stream, one = recorded(arm64, "turns"), load(arm64, "turns")
    assert stream.loss.get(Loss.MULTIPLEXED, 0) > 10
    found = characterised(stream, tmp_path / "trace", RAW, one.pid)
    for name in RAW:
        estimate = found[f"{name}_pki"]
        assert 0.02 < estimate.counted < 0.95
        assert estimate.low is not None
        assert estimate.high is not None
        assert estimate.low < estimate.value < estimate.high
        assert estimate.value == pytest.approx(1000, rel=0.05)
        assert estimate.low - 10 <= 1000 <= estimate.high + 10
