# SPDX-License-Identifier: Apache-2.0
"""Counters of single cores (PMU `power_core`) in an emulated machine of AMD's: what is read, and
how it divides a package's joules between two loads that always run at the same time.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nightly.vm.support.machine import Run
from nightly.vm.support.streams import BUSY_MW, CORES_MW, NS_PER_MS, Recorded, recorded
from qjoule.contract import Block, Loss
from qjoule.engine import tables
from qjoule.engine.attribute import attribute
from qjoule.model.result import Attribution, Row
from qjoule.reporters.provenance import heading
from qjoule.trace import Trace

pytestmark = pytest.mark.timeout(1800)

RAW_J = 2.0**-16  #: a count of the register that the kernel extends to 64 bits


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> Callable[[Trace], Attribution]:
    """Attributes a trace as if no single cores had been counted."""

    def attributed(trace: Trace) -> Attribution:
        with monkeypatch.context() as patch:
            patch.setattr(tables, "core_readings", lambda _energy: None)
            return attribute(trace)

    return attributed


def loads(attribution: Attribution) -> tuple[Row, Row]:
    """The rows of the two loads, that of CPU 0 first."""
    rows = {row.keys.get("process"): row for row in attribution.fixed}
    return rows["hungry"], rows["frugal"]


def _busy_ns(stream: Recorded, cpu: int, t_ns: np.ndarray) -> np.ndarray:
    """How long a CPU was busy until each time."""
    segments = stream.records(Block.SEGMENT)
    of_cpu = segments[segments["cpu"] == cpu]
    t0_ns, t1_ns = (of_cpu[edge].astype(np.int64)[:, None] for edge in ("t0_ns", "t1_ns"))
    return np.asarray(np.clip(t_ns - t0_ns, 0, t1_ns - t0_ns).sum(axis=0))


def _switches_lost(stream: Recorded, cpu: int) -> int:
    losses = stream.records(Block.LOSS)
    switch_losses = losses[(losses["cpu"] == cpu) & (losses["cause"] == Loss.SWITCH)]
    return int(switch_losses["count"].max(initial=0))


def test_each_cores_joules_are_what_it_drew(amd: Run) -> None:
    """To a millisecond and the time that a reading takes, at the core's highest power.

    Where the recording says that it lost a switch, one reading may have more than its segments.
    """
    stream = recorded(amd, "with")
    domains = stream.records(Block.DOMAIN)
    cores = domains[domains["name"] == b"one_core"]
    assert cores["die"].tolist() == [0, 1]
    assert cores["package"].tolist() == [0, 0]
    readings = stream.records(Block.ENERGY)
    for core, rest_mw, busy_mw in zip(cores, CORES_MW, BUSY_MW, strict=True):
        of_core = readings[readings["domain"] == core["domain"]]
        assert len(of_core) > 10
        assert not of_core["status"].any()
        t_ns, half_ns = of_core["t_ns"].astype(np.int64), of_core["half_width_ns"].astype(np.int64)
        drawn_j = np.diff(of_core["raw"].astype(np.int64)) * core["unit_j"]
        busy_ns = np.diff(_busy_ns(stream, int(core["die"]), t_ns))
        known_j = (rest_mw * np.diff(t_ns) + busy_mw * busy_ns) * 1e-12
        off_ns = half_ns[:-1] + half_ns[1:] + 2 * NS_PER_MS
        off = np.abs(drawn_j - known_j) > (rest_mw + busy_mw) * off_ns * 1e-12 + RAW_J
        assert np.count_nonzero(off) <= _switches_lost(stream, int(core["die"]))


def test_they_help_to_tell_two_loads_apart_that_run_together(
    amd: Run, tmp_path: Path, unread: Callable[[Trace], Attribution]
) -> None:
    """What the loads draw is within their intervals, and nearer than without the cores."""
    trace = recorded(amd, "with").trace(tmp_path / "trace")
    seeing, blind = attribute(trace), unread(trace)
    assert (seeing.energy_source.cores, blind.energy_source.cores) == ("measured per core", "")
    assert seeing.energy_source.reason == "using powercap"
    assert seeing.main.measured_nj == blind.main.measured_nj
    for row, busy_mw in zip(loads(seeing), BUSY_MW, strict=True):
        low_nj, high_nj = row.energy_nj_ci95
        assert low_nj < row.cpu_ns * busy_mw / 1e3 < high_nj
    (more, less), (blind_more, blind_less) = loads(seeing), loads(blind)
    assert more.energy_nj / less.energy_nj > 1.02 * blind_more.energy_nj / blind_less.energy_nj


def test_a_recording_on_a_kernel_without_them_says_so(amd: Run, tmp_path: Path) -> None:
    attribution = attribute(recorded(amd, "without").trace(tmp_path / "trace"))
    assert attribution.energy_source.cores == ""
    reason = "no counters of single cores: no PMU power_core (Linux 6.13 or later, module rapl)"
    assert any(reason in text for _, text in heading(attribution))


def test_cores_that_show_more_than_their_package_are_not_believed(
    amd: Run, tmp_path: Path, unread: Callable[[Trace], Attribution]
) -> None:
    trace = recorded(amd, "wrong").trace(tmp_path / "trace")
    wrong = attribute(trace)
    assert wrong.energy_source.cores == ""
    reason = "counters of single cores are not used: cores of package 0 show more than the package"
    assert any(note.startswith(reason) for note in wrong.model.notes)
    for row, same in zip(loads(wrong), loads(unread(trace)), strict=True):
        assert (row.energy_nj, row.energy_nj_ci95) == (same.energy_nj, same.energy_nj_ci95)
