# SPDX-License-Identifier: Apache-2.0
"""`hwmon` and `perf`: meters of the machine and of packages, intact and broken."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from energy_probe.probe import (
    TWO_PACKAGES,
    UNPRIVILEGED,
    Probe,
    Reading,
    chip,
    open_folder,
    pmu,
    refusal,
    write,
)
from qjoule.contract import DomainKind, Grade

PERIOD_S = 100.0
UW = 10**6


def meter(root: Path, power_uw: int | str = 250 * UW, number: int = 0) -> Path:
    """ACPI's meter, whose intervals are so long that they pass only when the clock is set."""
    files: dict[str, int | str] = {"power1_average": power_uw}
    period_ms = round(1000 * PERIOD_S)
    return chip(root, number, "power_meter", power1_average_interval=period_ms, **files)


def later(probe: Probe, intervals: float = 1.5) -> Reading:
    probe.wait(intervals * PERIOD_S)
    return probe.read()[0]


def assert_drawn(first: Reading, second: Reading, watts: int) -> None:
    """The counter moved by this power times the time between two readings.

    A reading happened at some time within its half width.
    """
    elapsed_ns, inexact_ns = second.t_ns - first.t_ns, first.half_width_ns + second.half_width_ns
    assert abs(second.raw - first.raw - watts * elapsed_ns) <= watts * (inexact_ns + 2)


def test_power_is_counted_once_in_its_interval(tmp_path: Path) -> None:
    folder = meter(tmp_path)
    with Probe(f"hwmon:{tmp_path}") as probe:
        assert (probe.error, probe.name, probe.grade) == (0, "hwmon", Grade.MEASURED)
        (domain,) = probe.domains
        assert (domain.name, domain.package, domain.unit_j) == ("psys", 0, 1e-9)
        assert (domain.period_ns, domain.kind) == (PERIOD_S * 1e9, DomainKind.POWER)
        first = probe.read()[0]
        assert (first.raw, first.status) == (0, 0)
        assert later(probe, 0.5).raw == 0
        write(folder / "power1_average", f"{100 * UW}\n")
        second = later(probe, 1.0)
    assert_drawn(first, second, 100)


@pytest.mark.parametrize("interval", ["", "soon", "-1", "0", "99999999999"])
def test_an_interval_that_is_none_is_a_second(tmp_path: Path, interval: str) -> None:
    write(meter(tmp_path) / "power1_average_interval", interval)
    with Probe(f"hwmon:{tmp_path}") as probe:
        assert probe.domains[0].period_ns == 1_000_000_000


def test_files_in_the_device_are_found_and_a_second_meter_is_not_added(tmp_path: Path) -> None:
    (tmp_path / "hwmon1").mkdir()
    meter(tmp_path / "elsewhere").rename(tmp_path / "hwmon1" / "device")
    meter(tmp_path, number=10)
    with Probe(f"hwmon:{tmp_path}") as probe:
        assert [d.name for d in probe.domains] == ["psys"]
        assert "left out power_meter of hwmon10 (a second meter)" in probe.why


def test_amd_counts_sockets_and_cores(tmp_path: Path) -> None:
    labels = ["Ecore000", "Ecore001", "Ecore002", "Ecore003", "Esocket0", "Esocket1"]
    files: dict[str, int | str] = {}
    for i, label in enumerate(labels, 1):
        files |= {f"energy{i}_label": label, f"energy{i}_input": 1000 * i}
    chip(tmp_path, 0, "amd_energy", **files)
    with Probe(f"hwmon:{tmp_path}", TWO_PACKAGES) as probe:
        assert [d.package for d in probe.domains] == [0, 0, 1, 1, 0, 1]
        assert [d.name for d in probe.domains] == ["core"] * 4 + ["package"] * 2
        assert {(d.period_ns, d.kind) for d in probe.domains} == {(1_000_000, DomainKind.COUNTER)}
        assert probe.raws() == [1000, 2000, 3000, 4000, 5000, 6000]


def test_what_is_no_complete_meter_is_refused(tmp_path: Path) -> None:
    chip(tmp_path, 0, "amdgpu", power1_average=50 * UW)
    chip(tmp_path, 1, "BAT0", power1_input=9 * UW)
    error, why = refusal(f"hwmon:{tmp_path}")
    assert (error, "no meter that is known" in why) == (errno.ENOENT, True)
    chip(tmp_path, 2, "amd_energy", energy1_label="Esocket0", energy1_input=1)
    error, why = refusal(f"hwmon:{tmp_path}", TWO_PACKAGES)
    assert (error, "no counter of package 1" in why) == (errno.ENOENT, True)
    error, why = refusal(f"hwmon:{tmp_path / 'none'}")
    assert (error, "acpi_power_meter" in why) == (errno.ENOENT, True)


def test_a_power_that_cannot_be_fails_and_is_made_up_for(tmp_path: Path) -> None:
    folder = meter(tmp_path)
    failures = {"-5000000": errno.EINVAL, "much": errno.EINVAL, "": errno.ENODATA}
    failures |= {str(2 * 10**12): errno.ERANGE, "9" * 23: errno.ERANGE}
    with Probe(f"hwmon:{tmp_path}") as probe:
        good = probe.read()[0]
        for text, status in failures.items():
            write(folder / "power1_average", text)
            failed = later(probe)
            assert (failed.raw, failed.status) == (good.raw, status)
            write(folder / "power1_average", f"{250 * UW}")
            before, good = good, later(probe)
            assert good.status == 0
            assert_drawn(before, good, 250)


def test_after_a_long_hole_the_counter_starts_again(tmp_path: Path) -> None:
    folder = meter(tmp_path)
    with Probe(f"hwmon:{tmp_path}") as probe:
        probe.read()
        assert later(probe).raw > 0
        write(folder / "power1_average", "much")
        assert later(probe, 6).status == errno.EINVAL
        write(folder / "power1_average", f"{250 * UW}")
        again = later(probe)
        assert (again.raw, again.status) == (0, errno.ENODATA)
        assert later(probe).status == 0


@pytest.mark.parametrize("text", ["", "0", "-1", "much", "9" * 30])
def test_a_meter_that_shows_no_power_is_not_opened(tmp_path: Path, text: str) -> None:
    meter(tmp_path, text)
    assert "left out power_meter of hwmon0" in refusal(f"hwmon:{tmp_path}")[1]


def test_reads_go_on_confined_and_without_the_file(tmp_path: Path) -> None:
    folder = meter(tmp_path)
    with Probe(f"hwmon:{tmp_path}", sanitized=False) as probe:
        probe.tell("confine")
        probe.read()
        assert later(probe).status == 0
        write(folder / "power1_average", "")
        (folder / "power1_average").unlink()
        assert later(probe).status == errno.ENODATA


CPU_CLOCK = "event=0x00"  # PERF_COUNT_SW_CPU_CLOCK: always counting, in ns
ENERGY = {"energy-pkg": CPU_CLOCK, "energy-ram": CPU_CLOCK, "energy-cores": CPU_CLOCK}

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="system-wide perf events need root")


@as_root
def test_counters_of_a_real_event_move(tmp_path: Path) -> None:
    place = pmu(tmp_path, "0", ENERGY)
    with Probe(f"perf:{place}") as probe:
        assert (probe.error, probe.name, probe.grade) == (0, "perf", Grade.MEASURED)
        assert [d.name for d in probe.domains] == ["package", "core", "dram"]
        assert {(d.unit_j, d.range) for d in probe.domains} == {(2.0**-32, 0)}
        first, second = probe.raws(), probe.raws()
        assert all(b > a for a, b in zip(first, second, strict=True))
    with Probe(f"perf:{place}", sanitized=False) as probe:
        probe.tell("drop")
        probe.tell("confine")
        assert all(raw > 0 for raw in probe.raws())


@as_root
@pytest.mark.parametrize("mask", ["0-1", "0,1"])
def test_one_event_on_each_cpu_of_the_mask(tmp_path: Path, mask: str) -> None:
    if (os.cpu_count() or 1) < 2:
        pytest.skip("needs two CPUs")
    with Probe(f"perf:{pmu(tmp_path, mask, {'energy-pkg': CPU_CLOCK})}", "0:0,1:1") as probe:
        assert [(d.package, d.name) for d in probe.domains] == [(0, "package"), (1, "package")]
        probe.raws()


@as_root
def test_a_package_without_a_counter_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "power"
    assert refusal(f"perf:{place}")[1].startswith(f"perf: no PMU at {place}; modprobe")
    error, why = refusal(f"perf:{pmu(tmp_path / 'a', '0', ENERGY)}", TWO_PACKAGES)
    assert (error, "no counter of package 1" in why) == (errno.ENOENT, True)
    advice = "; modprobe intel_rapl_msr, or in a VM use --energy auto or estimated"
    found = refusal(f"perf:{pmu(tmp_path / 'b', '0', {'energy-psys': CPU_CLOCK})}")
    assert found == (errno.ENOENT, f"perf: no counter of package 0, only psys{advice}")


@as_root
@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        *(("type", text, "type is not the number of a PMU") for text in ("power", "4294967297")),
        *(("cpumask", text, "is not a list of CPUs") for text in ("", "0,,0", "0,", "1-")),
        ("cpumask", "0-99999", "cpumask names CPU 2, not online"),
        *(("events/energy-pkg", f"event={text}", " is not event=0xNN") for text in ("2", "0x")),
        ("events/energy-pkg", "event=0x2,umask=0x1", "events/energy-pkg is not event=0xNN"),
        ("events/energy-pkg.unit", "Watts", "events/energy-pkg.unit does not say Joules"),
        *(("events/energy-pkg.scale", text, "positive") for text in ("", "-1", "nan", "1e-10J")),
    ],
)
def test_a_broken_pmu_is_refused(tmp_path: Path, file: str, text: str, reason: str) -> None:
    write(pmu(tmp_path, "0", ENERGY) / file, text)
    error, why = refusal(f"perf:{tmp_path}")
    assert error == errno.EINVAL
    assert reason in why


@as_root
def test_an_event_that_cannot_be_opened_is_named_with_its_cpu(tmp_path: Path) -> None:
    absent = 60_000  # no kernel is built for so many
    place = pmu(tmp_path, str(absent), ENERGY)
    assert f"of package on CPU {absent}: " in refusal(f"perf:{place}", f"{absent}:0")[1]
    place = pmu(tmp_path, "0", {"energy-pkg": "event=0xffff"})
    assert "perf_event_open of package on CPU 0" in refusal(f"perf:{place}")[1]


@as_root
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
