# SPDX-License-Identifier: Apache-2.0
"""`record --counters` on arm64: user and kernel instructions, stalls, and events that take turns.

The machine is that of test_vm_counters.py: an instruction takes a cycle of a nanosecond, and
nothing ever stalls it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nightly.vm.support.machine import Run
from nightly.vm.support.streams import Recorded, load, recorded
from qjoule.contract import MORE_COUNTERS, WHOLE, Block, Loss
from qjoule.studies.characterise import Estimate, MetricSums, metrics_of
from qjoule.studies.counted import events_in, events_of

pytestmark = pytest.mark.timeout(1800)

NAMES = ("instructions:u", "instructions:k", "stalled-cycles-frontend")
RAW = tuple(f"turn{i}" for i in range(MORE_COUNTERS))  #: each is INST_RETIRED


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


def test_user_and_kernel_are_all_of_the_instructions(arm64: Run) -> None:
    stream, one = recorded(arm64, "more"), load(arm64, "more")
    records = stream.records(Block.SEGMENT_MORE)
    mine = records[records["counted"]["segment"]["tgid"] == one.pid]
    assert len(mine) > 10
    assert (mine["shares"][:, : len(NAMES)] == WHOLE).all()
    user, kernel, stalls = mine["more"][:, : len(NAMES)].sum(axis=0).tolist()
    instructions = int(mine["counted"]["counters"][:, 1].sum())
    assert user + kernel == pytest.approx(instructions, rel=0.001)
    assert 0 < kernel < 0.3 * instructions
    assert user > 0.7 * instructions
    assert stalls == 0
    assert not stream.loss.keys() & {Loss.COUNTER, Loss.MULTIPLEXED}


def test_its_figures_are_what_the_machine_does(arm64: Run, tmp_path: Path) -> None:
    one = load(arm64, "more")
    found = characterised(recorded(arm64, "more"), tmp_path / "trace", NAMES, one.pid)
    assert found["ipc"].value == pytest.approx(1, rel=0.01)
    assert found["frequency_ghz"].value == pytest.approx(1, rel=0.01)
    assert 0 < found["kernel_instruction_share"].value < 0.3
    assert found["stall_frontend_share"].value == 0
    assert all(one.counted == pytest.approx(1, abs=1e-3) for one in found.values())


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
