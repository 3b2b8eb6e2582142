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
from qjoule.engine import recorded as model_recorded
from qjoule.trace import Trace
from tracing.recording import attribute

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def stream(amd64: Run) -> Recorded:
    return recorded(amd64, "recorded")


@pytest.fixture(scope="module")
def trace(stream: Recorded, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return stream.trace(tmp_path_factory.mktemp("powercap") / "trace")


def test_the_kernel_shows_the_counters_to_root_alone(amd64: Run) -> None:
    """Since CVE-2020-8694. The tracer keeps reading the files it opened before it gave up root."""
    permissions = [line.split()[:2] for line in amd64.text("permissions").splitlines()]
    assert permissions == [["400", "0"]] * len(POWER_MW)
    for line in amd64.text("ids").splitlines():
        assert set(line.split()[1:]) == {"65534"}


def test_the_source_is_found_without_being_named(trace: Trace) -> None:
    assert trace.meta.energy.source == "powercap"
    assert trace.meta.energy.grade == Grade.MEASURED.name.lower()
    found = {(d.package, d.name): (d.unit_j, d.range) for d in trace.meta.domains}
    assert found == dict.fromkeys(POWER_MW, (1e-6, RANGE_UJ))


def _power_mw(stream: Recorded) -> dict[int, int]:
    """By domain index."""
    return {
        int(d["domain"]): POWER_MW[int(d["package"]), d["name"].decode()]
        for d in stream.records(Block.DOMAIN)
    }


def test_every_reading_is_what_the_counter_was_then(stream: Recorded) -> None:
    """To the microjoule: the counter's value at some millisecond during the read."""
    readings = stream.records(Block.ENERGY)
    assert not readings["status"].any()
    for index, power_mw in _power_mw(stream).items():
        mine = readings[readings["domain"] == index]
        assert len(mine) > 100
        t_ns, half_ns = mine["t_ns"].astype(np.int64), mine["half_width_ns"].astype(np.int64) + 1
        first, last = (t_ns - half_ns) // NS_PER_MS, (t_ns + half_ns) // NS_PER_MS
        matched = np.zeros(len(mine), bool)
        for step in range(int((last - first).max()) + 1):
            ms = np.minimum(first + step, last)
            matched |= counter_uj(power_mw, ms) == mine["raw"].astype(np.int64)
        assert matched.all(), mine[~matched]


def test_energy_is_power_times_time_across_wraps(stream: Recorded, trace: Trace) -> None:
    """For the windows with a known figure; the error is one read and one update at each end of a
    run.
    """
    windows = model_recorded.windows(trace)
    lengths_ns = np.diff(windows.boundaries_ns)
    readings = stream.records(Block.ENERGY)
    # If the machine stalls within a read, the counter was read at either end of the stall.
    read_ns = NS_PER_MS + int(readings["half_width_ns"].max())
    for index, series in enumerate(windows.series):
        power_mw = POWER_MW[series.package, series.domain]
        known = windows.known[index]
        # The machine stalls at times; a window is then too long to be sure of its wraps.
        assert lengths_ns[known].sum() > 0.8 * lengths_ns.sum()
        runs = 1 + int(np.count_nonzero(np.diff(known.astype(int)) == 1))
        known_ns, energy_nj = (
            int(lengths_ns[known].sum()),
            int(windows.energy_nj[index, known].sum()),
        )
        slack_nj = 2 * runs * power_mw * read_ns / 1e3
        assert energy_nj == pytest.approx(power_mw * known_ns / 1e3, abs=slack_nj)
    for domain in stream.records(Block.DOMAIN):
        if domain["name"] == b"package":
            raw = readings["raw"][readings["domain"] == domain["domain"]]
            assert np.count_nonzero(raw[1:] < raw[:-1]) >= 1, "the counter should have wrapped"


def test_attribution_keeps_packages_and_domains_apart(trace: Trace) -> None:
    """The measured energy is that of the windows, and every joule of it has an owner."""
    windows = model_recorded.windows(trace)
    document = attribute(Path(trace.path))
    assert document["energy_source"]["grade"] == "measured"
    assert document["energy_source"]["main_domain"] == "package"
    assert set(document["domains_j"]) == {"package", "core", "dram"}
    for name, totals in document["domains_j"].items():
        of_name = [i for i, series in enumerate(windows.series) if series.domain == name]
        measured_nj = sum(int(windows.energy_nj[i, windows.known[i]].sum()) for i in of_name)
        parts = {part: round(joules * 1e9) for part, joules in totals.items()}
        assert parts.pop("measured") == measured_nj
        assert sum(parts.values()) == measured_nj
        assert parts["other_processes"] > 0
