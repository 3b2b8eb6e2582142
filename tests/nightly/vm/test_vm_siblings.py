# SPDX-License-Identifier: Apache-2.0
"""Two packages with SMT: topology, overlap and joules in the recording and the live view.

The live view's sums are held against the segments of another tracer, for the same seconds.
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
from qjoule.contract import Block, Grade

pytestmark = pytest.mark.timeout(1800)

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


def _overlap_ns(segments: np.ndarray, one: Load) -> int:
    """Part of a load's time in which anything ran on the other thread of its core."""
    mine = segments[segments["tgid"] == one.pid]
    beside = segments[segments["cpu"] == one.cpu ^ 1]
    begin = np.maximum.outer(mine["t0_ns"].astype(np.int64), beside["t0_ns"].astype(np.int64))
    end = np.minimum.outer(mine["t1_ns"].astype(np.int64), beside["t1_ns"].astype(np.int64))
    return int(np.maximum(end - begin, 0).sum())


@pytest.mark.parametrize("name", LOADS)
def test_the_live_views_overlap_is_that_of_the_segments(
    amd64: Run, live: Recorded, segments: np.ndarray, name: str
) -> None:
    """CPU time agrees within 2 % and 10 ms, and the part with a busy sibling within 10 %.

    An emulated CPU stalls for milliseconds between reading the time and reading its sibling's
    clock.
    """
    one = load(amd64, name)
    sums = live.records(Block.AGGREGATE)
    sums = sums[sums["tgid"] == one.pid]
    mine = segments[segments["tgid"] == one.pid]
    cpu_ns = int((mine["t1_ns"] - mine["t0_ns"]).sum())
    overlap_ns = _overlap_ns(segments, one)
    assert int(sums["cpu_ns"].sum()) == pytest.approx(cpu_ns, rel=0.02, abs=1e7)
    assert int(sums["overlap_ns"].sum()) == pytest.approx(overlap_ns, rel=0.1, abs=1e7)
    assert (sums["overlap_ns"] <= sums["cpu_ns"]).all()


def test_overlap_is_with_the_sibling_and_nobody_else(amd64: Run, segments: np.ndarray) -> None:
    """Two loads shared a core while a third had the other package almost to itself."""
    first, sibling, other = (load(amd64, name) for name in LOADS)
    together_ns = min(first.t1_ns, sibling.t1_ns) - max(first.t0_ns, sibling.t0_ns)
    assert together_ns > 3e8
    for one in (first, sibling):
        assert _overlap_ns(segments, one) >= 0.9 * together_ns
    assert _overlap_ns(segments, other) < 0.7 * other.cpu_ns


# ---- the kernel's own powercap tree: zones whose energy is a formula of time ---------------------


@pytest.fixture(scope="module")
def stream(amd64: Run) -> Recorded:
    return recorded(amd64, "recorded")


def test_the_kernel_shows_the_counters_to_root_alone(amd64: Run) -> None:
    """Since CVE-2020-8694. The tracer keeps reading the files it opened before it gave up root."""
    permissions = [line.split()[:2] for line in amd64.text("permissions").splitlines()]
    assert permissions == [["400", "0"]] * len(POWER_MW)
    for line in amd64.text("ids").splitlines():
        assert set(line.split()[1:]) == {"65534"}


def test_the_source_is_found_without_being_named(stream: Recorded, tmp_path: Path) -> None:
    trace = stream.trace(tmp_path / "trace")
    assert trace.meta.energy.source == "powercap"
    assert trace.meta.energy.grade == Grade.MEASURED.name.lower()
    found = {(d.package, d.name): (d.unit_j, d.range) for d in trace.meta.domains}
    assert found == dict.fromkeys(POWER_MW, (1e-6, RANGE_UJ))


def test_every_reading_is_what_the_counter_was_then(stream: Recorded) -> None:
    """To the microjoule: the counter's value at some millisecond during the read."""
    readings = stream.records(Block.ENERGY)
    assert not readings["status"].any()
    for domain in stream.records(Block.DOMAIN):
        power_mw = POWER_MW[int(domain["package"]), domain["name"].decode()]
        mine = readings[readings["domain"] == domain["domain"]]
        assert len(mine) > 100
        t_ns, half_ns = mine["t_ns"].astype(np.int64), mine["half_width_ns"].astype(np.int64) + 1
        first, last = (t_ns - half_ns) // NS_PER_MS, (t_ns + half_ns) // NS_PER_MS
        matched = np.zeros(len(mine), bool)
        for step in range(int((last - first).max()) + 1):
            ms = np.minimum(first + step, last)
            matched |= counter_uj(power_mw, ms) == mine["raw"].astype(np.int64)
        assert matched.all(), mine[~matched]
        if domain["name"] == b"package":
            raw = mine["raw"]
            assert np.count_nonzero(raw[1:] < raw[:-1]) >= 1, "the counter should have wrapped"
