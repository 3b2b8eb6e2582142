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
from nightly.vm.support.streams import WATTS, Recorded, load, recorded
from qjoule.contract import MORE_COUNTERS, WHOLE, Block, Loss
from qjoule.studies.characterise import Estimate, MetricSums, metrics_of
from qjoule.studies.counted import events_in, events_of
from tracing.recording import attribute

pytestmark = pytest.mark.timeout(1800)

CYCLES, INSTRUCTIONS, LLC_MISSES = 1, 2, 4
INTERRUPT_NS = 100_000  #: maximum of one, times the whole segment over its counted part


@pytest.fixture(scope="module")
def counted(arm64: Run) -> Recorded:
    return recorded(arm64, "counted")


@pytest.fixture(scope="module")
def crowded(arm64: Run) -> Recorded:
    return recorded(arm64, "crowded")


def _ns(segments: np.ndarray) -> np.ndarray:
    lengths: np.ndarray = (segments["t1_ns"] - segments["t0_ns"]).astype(np.float64)
    return lengths


def test_every_segment_has_its_cycles_and_instructions(counted: Recorded) -> None:
    """As many as nanoseconds, up to the delay between reading the time and reading the counters."""
    records = counted.records(Block.SEGMENT_COUNTERS)
    segments, counters = records["segment"], records["counters"].astype(np.float64)
    assert int(counted.records(Block.HELLO)["counters"][0]) == CYCLES | INSTRUCTIONS
    assert len(segments) > 50
    assert not counted.records(Block.SEGMENT).size
    assert (segments["valid"] == CYCLES | INSTRUCTIONS).all()
    assert (segments["counted"] == WHOLE).all()
    assert np.abs(counters[:, 0] - _ns(segments)).max() < 30_000
    assert counters[:, 0].sum() == pytest.approx(_ns(segments).sum(), rel=0.005)
    assert np.abs(counters[:, 1] - counters[:, 0]).max() < 1_000
    assert not counters[:, 2].any()
    assert not counted.loss.keys() & {Loss.COUNTER, Loss.MULTIPLEXED}


def test_a_loads_sums_are_what_it_counted_itself(arm64: Run, counted: Recorded) -> None:
    """Within 0.5 %, because the segments include its start and end as well."""
    one = load(arm64, "counted")
    records = counted.records(Block.SEGMENT_COUNTERS)
    mine = records[records["segment"]["tgid"] == one.pid]
    cycles, instructions, _ = mine["counters"].sum(axis=0).tolist()
    assert one.cycles
    assert one.instructions
    assert cycles == pytest.approx(one.cycles, rel=0.005)
    assert instructions == pytest.approx(one.instructions, rel=0.005)


def test_attribution_weighs_by_the_counters(arm64: Run, counted: Recorded, tmp_path: Path) -> None:
    """The load had nearly all cycles, so it gets nearly all of the energy of its time.

    The machine's power does not depend on what runs, so all of it may be static power. The policy
    divides that like the rest.
    """
    counted.trace(tmp_path / "trace")
    document = attribute(tmp_path / "trace", "--idle", "proportional")
    assert document["model"]["weight"] == "counters"
    assert document["energy_source"]["grade"] == "simulated"
    measured_j = document["totals_j"]["measured"]
    one = load(arm64, "counted")
    load_j = WATTS * (one.t1_ns - one.t0_ns) / 1e9
    assert measured_j == pytest.approx(WATTS * document["trace"]["duration_s"], rel=0.05)
    assert document["totals_j"]["other_processes"] == pytest.approx(load_j, rel=0.05)


def test_a_counter_that_the_machine_lacks_is_said_and_not_zero(arm64: Run) -> None:
    words = arm64.text("absent.err")
    assert words.startswith("qjoule-tracer: counter llc-misses is not available: ")
    stream = recorded(arm64, "absent")
    assert int(stream.records(Block.HELLO)["counters"][0]) == CYCLES
    segments = stream.records(Block.SEGMENT_COUNTERS)["segment"]
    assert segments.size
    assert (segments["valid"] == CYCLES).all()


def test_multiplexed_counters_are_scaled_to_the_whole_segment(crowded: Recorded) -> None:
    """One cycle per nanosecond, whatever part was counted; less than a tenth is too little to
    scale.
    """
    records = crowded.records(Block.SEGMENT_COUNTERS)
    segments, counters = records["segment"], records["counters"].astype(np.float64)
    partly = (segments["counted"] >= WHOLE // 10) & (segments["counted"] < WHOLE * 9 // 10)
    for index, bit in ((0, CYCLES), (1, INSTRUCTIONS)):
        scaled = partly & (segments["valid"] & bit > 0) & (_ns(segments) > 1e6)
        assert np.count_nonzero(scaled) >= 10, "the counters should have taken turns"
        # An interrupt in the counted part is scaled as if it had been in every part.
        wanted = pytest.approx(_ns(segments)[scaled], rel=0.03, abs=INTERRUPT_NS)
        assert counters[scaled, index] == wanted


def test_what_was_not_counted_is_counted_as_loss(crowded: Recorded) -> None:
    segments = crowded.records(Block.SEGMENT_COUNTERS)["segment"]
    lacking = np.count_nonzero(segments["valid"] != CYCLES | INSTRUCTIONS)
    scaled = np.count_nonzero((segments["valid"] > 0) & (segments["counted"] < WHOLE))
    assert crowded.loss.get(Loss.COUNTER, 0) == lacking
    assert crowded.loss.get(Loss.MULTIPLEXED, 0) == scaled
    assert scaled >= 10


def test_a_pinned_event_of_the_load_saw_all_of_it(arm64: Run, crowded: Recorded) -> None:
    """The reference event did not take turns; the tracer's figure for the load is no larger."""
    one = load(arm64, "crowded")
    assert one.cycles
    assert one.cycles == pytest.approx(one.cpu_ns, rel=0.01)
    records = crowded.records(Block.SEGMENT_COUNTERS)
    mine = records[records["segment"]["tgid"] == one.pid]
    assert 0 < int(mine["counters"][:, 0].sum()) <= 1.02 * one.cycles


def test_the_live_view_knows_for_how_much_time_it_counted(arm64: Run) -> None:
    stream = recorded(arm64, "crowded_live")
    one = load(arm64, "crowded")
    sums = stream.records(Block.AGGREGATE)
    sums = sums[sums["tgid"] == one.pid]
    cpu_ns, counted_ns = int(sums["cpu_ns"].sum()), int(sums["counted_ns"][:, 0].sum())
    assert 0 < counted_ns < cpu_ns
    assert 0 < int(sums["scaled_ns"].sum()) < cpu_ns
    assert int(sums["counters"][:, 0].sum()) == pytest.approx(counted_ns, rel=0.05)
    partly = sums["counted_ns"][:, 0] < sums["cpu_ns"]
    assert not (sums["valid"][partly] & CYCLES).any()


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
