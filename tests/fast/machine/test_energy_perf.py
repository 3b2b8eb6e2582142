# SPDX-License-Identifier: Apache-2.0
"""`perf`: a fake PMU directory whose type is the kernel's software PMU, so real events are read."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from energy_probe.probe import TWO_PACKAGES, UNPRIVILEGED, Probe, open_folder, pmu, write
from qjoule.contract import Grade

CPU_CLOCK = "event=0x00"  # PERF_COUNT_SW_CPU_CLOCK: always counting, in ns
ENERGY = {"energy-pkg": CPU_CLOCK, "energy-ram": CPU_CLOCK, "energy-cores": CPU_CLOCK}

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="system-wide perf events need root")


def test_counters_of_a_real_event_move(tmp_path: Path) -> None:
    with Probe(f"perf:{pmu(tmp_path, '0', ENERGY)}") as probe:
        assert (probe.error, probe.name, probe.grade) == (0, "perf", Grade.MEASURED)
        assert [d.name for d in probe.domains] == ["package", "core", "dram"]
        assert {(d.unit_j, d.range) for d in probe.domains} == {(2.0**-32, 0)}
        first, second = probe.raws(), probe.raws()
        assert all(b > a for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("mask", ["0-1", "0,1"])
def test_one_event_on_each_cpu_of_the_mask(tmp_path: Path, mask: str) -> None:
    if (os.cpu_count() or 1) < 2:
        pytest.skip("needs two CPUs")
    with Probe(f"perf:{pmu(tmp_path, mask, {'energy-pkg': CPU_CLOCK})}", "0:0,1:1") as probe:
        assert [(d.package, d.name) for d in probe.domains] == [(0, "package"), (1, "package")]
        probe.raws()


def test_reads_go_on_without_root_and_confined(tmp_path: Path) -> None:
    with Probe(f"perf:{pmu(tmp_path, '0', ENERGY)}", sanitized=False) as probe:
        probe.tell("drop")
        probe.tell("confine")
        assert all(raw > 0 for raw in probe.raws())


def test_package_left_out_of_the_mask_is_refused(tmp_path: Path) -> None:
    with Probe(f"perf:{pmu(tmp_path, '0', ENERGY)}", TWO_PACKAGES) as probe:
        assert probe.error == -errno.ENOENT
        assert "no counter of package 1" in probe.why


def test_psys_alone_is_not_a_package(tmp_path: Path) -> None:
    with Probe(f"perf:{pmu(tmp_path, '0', {'energy-psys': CPU_CLOCK})}") as probe:
        assert probe.error == -errno.ENOENT
        assert probe.why == (
            "perf: no counter of package 0, only psys"
            "; modprobe intel_rapl_msr, or in a VM use --energy auto or estimated"
        )


def test_no_pmu_says_what_to_do(tmp_path: Path) -> None:
    with Probe(f"perf:{tmp_path / 'power'}", why_bytes=4096) as probe:
        assert probe.error == -errno.ENOENT
        assert probe.why.startswith(f"perf: no PMU at {tmp_path / 'power'}; modprobe")


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("type", "power", "type is not the number of a PMU"),
        ("type", "", "type is not the number of a PMU"),
        ("type", "4294967297", "type is not the number of a PMU"),
        ("cpumask", "", "is not a list of CPUs"),
        ("cpumask", "0,,0", "is not a list of CPUs"),
        ("cpumask", "0,", "is not a list of CPUs"),
        ("cpumask", "1-", "is not a list of CPUs"),
        ("cpumask", "all", "is not a list of CPUs"),
        ("cpumask", "0-99999", "cpumask names CPU 2, not online"),
        ("events/energy-pkg", "event=2", "events/energy-pkg is not event=0xNN"),
        ("events/energy-pkg", "event=0x", "events/energy-pkg is not event=0xNN"),
        ("events/energy-pkg", "event=0x2,umask=0x1", "events/energy-pkg is not event=0xNN"),
        ("events/energy-pkg.unit", "Watts", "events/energy-pkg.unit does not say Joules"),
        ("events/energy-pkg.scale", "", "events/energy-pkg.scale is not a positive number"),
        ("events/energy-pkg.scale", "-1", "events/energy-pkg.scale is not a positive number"),
        ("events/energy-pkg.scale", "nan", "events/energy-pkg.scale is not a positive number"),
        ("events/energy-pkg.scale", "1e-10J", "events/energy-pkg.scale is not a positive number"),
    ],
)
def test_pmu_that_lies_is_refused(tmp_path: Path, file: str, text: str, expected: str) -> None:
    write(pmu(tmp_path, "0", ENERGY) / file, text)
    with Probe(f"perf:{tmp_path}") as probe:
        assert probe.error == -errno.EINVAL
        assert expected in probe.why


def test_event_is_opened_on_the_cpu_that_the_mask_names(tmp_path: Path) -> None:
    absent = 60_000  # no kernel is built for so many
    with Probe(f"perf:{pmu(tmp_path, str(absent), ENERGY)}", f"{absent}:0") as probe:
        assert probe.error < 0
        assert f"perf_event_open of package on CPU {absent}: " in probe.why


def test_event_that_the_kernel_does_not_know(tmp_path: Path) -> None:
    with Probe(f"perf:{pmu(tmp_path, '0', {'energy-pkg': 'event=0xffff'})}") as probe:
        assert probe.error < 0
        assert "perf_event_open of package on CPU 0" in probe.why


def test_not_root_says_so() -> None:
    paranoid = int(Path("/proc/sys/kernel/perf_event_paranoid").read_text())
    if paranoid < 1:
        pytest.skip("perf_event_paranoid lets everybody open system-wide events")
    with (
        open_folder() as folder,
        Probe(f"perf:{pmu(folder, '0', ENERGY)}", wrapper=UNPRIVILEGED) as probe,
    ):
        assert probe.error in (-errno.EACCES, -errno.EPERM)
        assert probe.why.endswith("; run as root")
