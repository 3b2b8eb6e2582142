# SPDX-License-Identifier: Apache-2.0
"""`auto`, `none` and invalid specs."""

from __future__ import annotations

import errno
import itertools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from energy_probe.probe import INTEL_MAX_UJ, Probe, pmu, zone
from qjoule.contract import Grade

CURVE = "10,30,60,80"
LABEL = "Emerald Rapids, 2 threads"


@pytest.fixture
def powercap_root(tmp_path: Path) -> Path:
    root = tmp_path / "powercap"
    root.mkdir()
    return root


@pytest.fixture
def perf_sysfs(tmp_path: Path) -> Path:
    return tmp_path / "power"


@contextmanager
def counting(energy_uj: Path) -> Iterator[None]:
    """Advances the counter in place, never empty, while the source is being opened."""
    stop = threading.Event()

    def run() -> None:
        descriptor = os.open(energy_uj, os.O_WRONLY)
        for value in itertools.count(10**9):
            os.pwrite(descriptor, b"%d\n" % value, 0)
            if stop.wait(0.001):
                break
        os.close(descriptor)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_powercap_that_counts_is_taken_first(powercap_root: Path, perf_sysfs: Path) -> None:
    with (
        counting(zone(powercap_root, "intel-rapl:0", "package-0", 10**9, INTEL_MAX_UJ)),
        Probe("auto", powercap_root=powercap_root, perf_sysfs=perf_sysfs, curve=CURVE) as probe,
    ):
        assert (probe.name, probe.grade) == ("powercap", Grade.MEASURED)
        assert probe.why == "using powercap"


@pytest.mark.skipif(os.geteuid() != 0, reason="system-wide perf events need root")
def test_perf_is_next_and_powercap_says_why_not(powercap_root: Path, perf_sysfs: Path) -> None:
    pmu(perf_sysfs, "0", {"energy-pkg": "event=0x00"})
    with Probe(
        "auto", powercap_root=powercap_root, perf_sysfs=perf_sysfs, curve=CURVE, why_bytes=4096
    ) as probe:
        assert probe.name == "perf"
        assert probe.why == f"powercap: no intel-rapl zones under {powercap_root}; using perf"


def test_counter_that_stands_still_is_not_taken(powercap_root: Path, perf_sysfs: Path) -> None:
    zone(powercap_root, "intel-rapl:0", "package-0", 0, INTEL_MAX_UJ)
    with Probe(
        "auto",
        powercap_root=powercap_root,
        perf_sysfs=perf_sysfs,
        curve=CURVE,
        curve_label=LABEL,
        why_bytes=4096,
    ) as probe:
        assert (probe.name, probe.grade) == ("estimated", Grade.ESTIMATED)
        assert probe.why.startswith("powercap: counters did not move in 100 ms; perf: no PMU at ")
        assert probe.why.endswith(f"; using the power curve of {LABEL}")


def test_host_comes_before_the_curve(powercap_root: Path, perf_sysfs: Path, tmp_path: Path) -> None:
    zone(tmp_path / "host", "intel-rapl:0", None, 0, None)
    with Probe(
        "auto",
        powercap_root=powercap_root,
        perf_sysfs=perf_sysfs,
        host_root=tmp_path / "host",
        curve=CURVE,
    ) as probe:
        assert (probe.name, probe.grade) == ("host", Grade.ESTIMATED)


def test_nothing_at_all_is_none_and_says_so(powercap_root: Path, perf_sysfs: Path) -> None:
    with Probe("auto", powercap_root=powercap_root, perf_sysfs=perf_sysfs) as probe:
        assert (probe.error, probe.name, probe.grade) == (0, "none", Grade.NONE)
        assert probe.domains == []
        assert probe.read() == []
        assert probe.why.startswith("powercap: no intel-rapl zones under ")
        assert len(probe.why) <= 191


def test_bad_curve_is_a_reason_too(powercap_root: Path, perf_sysfs: Path) -> None:
    with Probe(
        "auto", powercap_root=powercap_root, perf_sysfs=perf_sysfs, curve="4,3,2,1", why_bytes=4096
    ) as probe:
        assert probe.name == "none"
        assert "estimated: '4,3,2,1' falls with load; no energy, only CPU time" in probe.why


def test_none() -> None:
    with Probe("none") as probe:
        assert (probe.error, probe.grade, probe.domains) == (0, Grade.NONE, [])
        assert probe.why == "none: no energy, only CPU time"


@pytest.mark.parametrize(
    "spec", ["", "rapl", "powercap:", "none:x", "Auto", "perfect", "host", "power", ":", "a" * 500]
)
def test_spec_that_means_nothing(spec: str) -> None:
    with Probe(spec) as probe:
        assert probe.error == -errno.EINVAL
        assert "energy source '" in probe.why
