# SPDX-License-Identifier: Apache-2.0
"""Joules through the kernel's own powercap tree, from zones whose energy is a formula of time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nightly.vm.support.fake_rapl import NS_PER_MS, POWER_MW, RANGE_UJ, counter_uj
from nightly.vm.support.machine import Run
from nightly.vm.support.streams import Recorded, recorded
from qjoule.contract import Block, Grade

pytestmark = pytest.mark.timeout(1800)


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
