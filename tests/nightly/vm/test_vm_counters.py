# SPDX-License-Identifier: Apache-2.0
"""Hardware counters on arm64, on a machine where each instruction takes one cycle of 1 ns. Also:
two packages with SMT.

Nothing ever stalls it. `record --counters` adds user and kernel instructions, stalls, and events
that take turns.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nightly.vm.support.machine import Run
from nightly.vm.support.streams import (
    NS_PER_MS,
    POWER_MW,
    RANGE_UJ,
    Load,
    Recorded,
    counter_uj,
    load,
    recorded,
)
from qjoule.contract import MORE_COUNTERS, WHOLE, Block, Grade, Loss
from qjoule_studies.characterise import Estimate, MetricSums, metrics_of
from qjoule_studies.counted import events_in, events_of

pytestmark = pytest.mark.timeout(1800)

OWN_USERS = range(2_100_000_000, 2_104_194_305)  #: of commands (tracer/root/user.c)
CYCLES, INSTRUCTIONS = 1, 2
NAMES = ("instructions:u", "instructions:k", "stalled-cycles-frontend")
RAW = tuple(f"turn{i}" for i in range(MORE_COUNTERS))  #: each is INST_RETIRED


@pytest.fixture(scope="module")
def counted(arm64: Run) -> Recorded:
    return recorded(arm64, "counted")


def test_every_segment_has_its_cycles_and_instructions(arm64: Run, counted: Recorded) -> None:
    """Each segment has as many as nanoseconds, up to the delay between reading the time and reading
    the counters.

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
    counted_load = load(arm64, "counted")
    cycles = counters[segments["tgid"] == counted_load.pid, 0].sum()
    assert cycles == pytest.approx(counted_load.cpu_ns, rel=0.01)


def test_a_counter_that_the_machine_lacks_is_said_and_not_zero(arm64: Run) -> None:
    messages = arm64.text("absent.err")
    assert messages.startswith("qjoule-tracer: counter llc-misses is not available: ")
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
    own_owners = owners[owners["tgid"] == pid]["owner"].tolist()
    table = trace.table("segments")
    table = table.filter(np.isin(table.column("owner").to_numpy(), own_owners))
    lengths = table.column("t1_ns").to_numpy() - table.column("t0_ns").to_numpy()
    sums = MetricSums(metrics_of(events_of(trace)), 1)
    group = np.zeros(table.num_rows, np.int64)
    sums.add(group, lengths.astype(np.float64), events_in(table, names))
    return sums.estimates(0)


def test_user_and_kernel_are_all_of_the_instructions(arm64: Run, tmp_path: Path) -> None:
    stream, counted_load = recorded(arm64, "more"), load(arm64, "more")
    records = stream.records(Block.SEGMENT_MORE)
    own_records = records[records["counted"]["segment"]["tgid"] == counted_load.pid]
    assert len(own_records) > 10
    assert (own_records["shares"][:, : len(NAMES)] == WHOLE).all()
    user, kernel, _ = own_records["more"][:, : len(NAMES)].sum(axis=0).tolist()
    instructions = int(own_records["counted"]["counters"][:, 1].sum())
    assert user + kernel == pytest.approx(instructions, rel=0.001)
    assert not stream.loss.keys() & {Loss.COUNTER, Loss.MULTIPLEXED}
    figures = characterised(stream, tmp_path / "trace", NAMES, counted_load.pid)
    assert figures["ipc"].value == pytest.approx(1, rel=0.01)
    assert figures["frequency_ghz"].value == pytest.approx(1, rel=0.01)
    assert 0 < figures["kernel_instruction_share"].value < 0.3
    assert figures["stall_frontend_share"].value == 0


def test_events_that_take_turns_are_scaled_and_said(arm64: Run, tmp_path: Path) -> None:
    """Each counts instructions, of which there are 1000 per 1000; that must be the result."""
    stream, counted_load = recorded(arm64, "turns"), load(arm64, "turns")
    assert stream.loss.get(Loss.MULTIPLEXED, 0) > 10
    figures = characterised(stream, tmp_path / "trace", RAW, counted_load.pid)
    for name in RAW:
        estimate = figures[f"{name}_pki"]
        assert 0.02 < estimate.counted < 0.95
        assert estimate.low is not None
        assert estimate.high is not None
        assert estimate.low < estimate.value < estimate.high
        assert estimate.value == pytest.approx(1000, rel=0.05)
        assert estimate.low - 10 <= 1000 <= estimate.high + 10


# --------------------------------------------------------------------------------------------------
#
# Two packages with SMT: topology, overlap and joules in the recording and the live view.
#
# The live view's sums are held against the segments of another tracer, for the same seconds.

LOADS = ("first", "sibling", "other")


@pytest.fixture(scope="module")
def live(amd64: Run) -> Recorded:
    return recorded(amd64, "live")


@pytest.fixture(scope="module")
def segments(amd64: Run) -> np.ndarray:
    return recorded(amd64, "recorded").records(Block.SEGMENT)


def test_cores_and_packages_are_the_machines(live: Recorded) -> None:
    cpus = live.records(Block.CPU)
    assert cpus["cpu"].tolist() == [0, 1, 2, 3]
    assert cpus["package"].tolist() == [0, 0, 1, 1]
    assert cpus["core"].tolist() == [0, 0, 0, 0]
    assert cpus["sibling"].tolist() == [0, 0, 2, 2]


def _overlap_ns(segments: np.ndarray, program_load: Load) -> int:
    """Part of a load's time in which anything ran on the other thread of its core."""
    own_segments = segments[segments["tgid"] == program_load.pid]
    beside = segments[segments["cpu"] == program_load.cpu ^ 1]
    begin = np.maximum.outer(
        own_segments["t0_ns"].astype(np.int64), beside["t0_ns"].astype(np.int64)
    )
    end = np.minimum.outer(own_segments["t1_ns"].astype(np.int64), beside["t1_ns"].astype(np.int64))
    return int(np.maximum(end - begin, 0).sum())


@pytest.mark.parametrize("name", LOADS)
def test_the_live_views_overlap_is_that_of_the_segments(
    amd64: Run, live: Recorded, segments: np.ndarray, name: str
) -> None:
    """CPU time agrees within 2 % and 10 ms, and the part with a busy sibling within 10 %.

    An emulated CPU stalls for milliseconds between reading the time and reading its sibling's
    clock.
    """
    program_load = load(amd64, name)
    sums = live.records(Block.AGGREGATE)
    sums = sums[sums["tgid"] == program_load.pid]
    own_segments = segments[segments["tgid"] == program_load.pid]
    cpu_ns = int((own_segments["t1_ns"] - own_segments["t0_ns"]).sum())
    overlap_ns = _overlap_ns(segments, program_load)
    assert int(sums["cpu_ns"].sum()) == pytest.approx(cpu_ns, rel=0.02, abs=1e7)
    assert int(sums["overlap_ns"].sum()) == pytest.approx(overlap_ns, rel=0.1, abs=1e7)
    assert (sums["overlap_ns"] <= sums["cpu_ns"]).all()


def test_overlap_is_with_the_sibling_and_nobody_else(amd64: Run, segments: np.ndarray) -> None:
    """Two loads shared a core while a third had the other package almost to itself."""
    first, sibling, other = (load(amd64, name) for name in LOADS)
    together_ns = min(first.t1_ns, sibling.t1_ns) - max(first.t0_ns, sibling.t0_ns)
    assert together_ns > 3e8
    for program_load in (first, sibling):
        assert _overlap_ns(segments, program_load) >= 0.9 * together_ns
    assert _overlap_ns(segments, other) < 0.7 * other.cpu_ns


# ---- the kernel's own powercap tree: zones whose energy is a formula of time ---------------------


@pytest.fixture(scope="module")
def stream(amd64: Run) -> Recorded:
    return recorded(amd64, "recorded")


def test_the_kernel_shows_the_counters_to_root_alone(amd64: Run) -> None:
    """Since CVE-2020-8694. The tracer has them from the root part, and is a user of its own."""
    permissions = [line.split()[:2] for line in amd64.text("permissions").splitlines()]
    assert permissions == [["400", "0"]] * len(POWER_MW)
    ids = {int(number) for line in amd64.text("ids").splitlines() for number in line.split()[1:]}
    assert len(ids) == 1
    assert ids.pop() in OWN_USERS


def test_the_source_is_found_without_being_named(stream: Recorded, tmp_path: Path) -> None:
    trace = stream.trace(tmp_path / "trace")
    assert trace.meta.energy.source == "powercap"
    assert trace.meta.energy.grade == Grade.MEASURED.name.lower()
    domains = {(d.package, d.name): (d.unit_j, d.range) for d in trace.meta.domains}
    assert domains == dict.fromkeys(POWER_MW, (1e-6, RANGE_UJ))


def test_every_reading_is_what_the_counter_was_then(stream: Recorded) -> None:
    """To the microjoule: the counter's value at some millisecond during the read."""
    readings = stream.records(Block.ENERGY)
    assert not readings["status"].any()
    for domain in stream.records(Block.DOMAIN):
        power_mw = POWER_MW[int(domain["package"]), domain["name"].decode()]
        of_domain = readings[readings["domain"] == domain["domain"]]
        assert len(of_domain) > 100
        t_ns, half_ns = (
            of_domain["t_ns"].astype(np.int64),
            of_domain["half_width_ns"].astype(np.int64) + 1,
        )
        first, last = (t_ns - half_ns) // NS_PER_MS, (t_ns + half_ns) // NS_PER_MS
        matched = np.zeros(len(of_domain), bool)
        for step in range(int((last - first).max()) + 1):
            ms = np.minimum(first + step, last)
            matched |= counter_uj(power_mw, ms) == of_domain["raw"].astype(np.int64)
        assert matched.all(), of_domain[~matched]
        if domain["name"] == b"package":
            raw = of_domain["raw"]
            assert np.count_nonzero(raw[1:] < raw[:-1]) >= 1, "the counter should have wrapped"
