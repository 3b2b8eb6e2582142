# SPDX-License-Identifier: Apache-2.0
"""`hwmon` and `perf`: meters of the machine and of packages, intact and broken."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from energy_probe.probe import (
    TWO_PACKAGES,
    Probe,
    Reading,
    chip,
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


def test_a_power_that_cannot_be_fails_and_is_made_up_for(tmp_path: Path) -> None:
    folder = meter(tmp_path)
    failures = {"much": errno.EINVAL, "": errno.ENODATA, str(2 * 10**12): errno.ERANGE}
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
def test_each_die_has_its_events_and_the_platform_one(tmp_path: Path) -> None:
    place = pmu(tmp_path, "0-1", {"energy-pkg": CPU_CLOCK, "energy-psys": CPU_CLOCK})
    with Probe(f"perf:{place}", "0:0:4,1:0:7") as probe:
        found = [(d.die, d.name) for d in probe.domains]
        assert found == [(4, "package"), (None, "psys"), (7, "package")]
    with Probe(f"perf:{place}", "0:0:4,1:0:7", of_packages="yes") as probe:
        assert [(d.die, d.name) for d in probe.domains] == [(None, "package"), (None, "psys")]


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
        ("type", "power", "type is not the number of a PMU"),
        ("cpumask", "0,,0", "is not a list of CPUs"),
        ("cpumask", "0-99999", "cpumask names CPU 2, not online"),
        ("events/energy-pkg", "event=0x2,umask=0x1", "events/energy-pkg is not event=0xNN"),
        ("events/energy-pkg.unit", "Watts", "events/energy-pkg.unit does not say Joules"),
        *(("events/energy-pkg.scale", text, "positive") for text in ("-1", "nan")),
    ],
)
def test_a_broken_pmu_is_refused(tmp_path: Path, file: str, text: str, reason: str) -> None:
    write(pmu(tmp_path, "0", ENERGY) / file, text)
    error, why = refusal(f"perf:{tmp_path}")
    assert error == errno.EINVAL
    assert reason in why
