# SPDX-License-Identifier: Apache-2.0
"""`hwmon`: meters of the machine and of packages, intact and broken."""

from __future__ import annotations

import errno
import time
from pathlib import Path

import pytest

from energy_probe.probe import TWO_PACKAGES, Probe, Reading, chip, write
from qjoule.contract import DomainKind, Grade

PERIOD_MS = 100
PERIOD_NS = PERIOD_MS * 1_000_000
UW = 10**6


def meter(root: Path, power_uw: int | str = 250 * UW, number: int = 0) -> Path:
    """ACPI's meter with short intervals."""
    files: dict[str, int | str] = {"power1_average": power_uw}
    return chip(root, number, "power_meter", power1_average_interval=PERIOD_MS, **files)


def later(probe: Probe, domain: int = 0) -> Reading:
    """A reading one interval later."""
    time.sleep(1.5 * PERIOD_NS * 1e-9)
    return probe.read()[domain]


def assert_drawn(first: Reading, second: Reading, watts: int) -> None:
    """The counter moved by this power times the time between two readings.

    A reading happened at some time within its half width.
    """
    elapsed_ns, inexact_ns = second.t_ns - first.t_ns, first.half_width_ns + second.half_width_ns
    assert abs(second.raw - first.raw - watts * elapsed_ns) <= watts * (inexact_ns + 2)


def test_power_is_counted_from_one_reading_to_the_next(tmp_path: Path) -> None:
    folder = meter(tmp_path)
    with Probe(f"hwmon:{tmp_path}") as probe:
        assert (probe.error, probe.name, probe.grade) == (0, "hwmon", Grade.MEASURED)
        (domain,) = probe.domains
        assert (domain.name, domain.package, domain.unit_j) == ("psys", 0, 1e-9)
        assert (domain.period_ns, domain.kind) == (PERIOD_NS, DomainKind.POWER)
        first = probe.read()[0]
        assert (first.raw, first.status) == (0, 0)
        write(folder / "power1_average", f"{100 * UW}\n")
        second = later(probe)
    assert_drawn(first, second, 100)


def test_power_is_read_once_in_its_interval(tmp_path: Path) -> None:
    chip(tmp_path, 3, "power_meter", power1_average=250 * UW, power1_average_interval=60_000)
    with Probe(f"hwmon:{tmp_path}") as probe:
        assert probe.domains[0].period_ns == 60_000_000_000
        assert {probe.read()[0].raw for _ in range(20)} == {0}


@pytest.mark.parametrize("interval", ["", "soon", "-1", "0", "99999999999"])
def test_an_interval_that_is_none_is_a_second(tmp_path: Path, interval: str) -> None:
    folder = meter(tmp_path)
    write(folder / "power1_average_interval", interval)
    with Probe(f"hwmon:{tmp_path}") as probe:
        assert probe.domains[0].period_ns == 1_000_000_000


def test_files_in_the_device_are_found(tmp_path: Path) -> None:
    (tmp_path / "hwmon1").mkdir()
    meter(tmp_path / "elsewhere").rename(tmp_path / "hwmon1" / "device")
    with Probe(f"hwmon:{tmp_path}") as probe:
        assert [d.name for d in probe.domains] == ["psys"]


def test_amd_counts_sockets_and_cores(tmp_path: Path) -> None:
    labels = ["Ecore000", "Ecore001", "Ecore002", "Ecore003", "Esocket0", "Esocket1"]
    files: dict[str, int | str] = {}
    for i, label in enumerate(labels, 1):
        files |= {f"energy{i}_label": label, f"energy{i}_input": 1000 * i}
    chip(tmp_path, 0, "amd_energy", **files)
    with Probe(f"hwmon:{tmp_path}", TWO_PACKAGES) as probe:
        found = [(d.package, d.name) for d in probe.domains]
        assert found == [*[(0, "core")] * 2, *[(1, "core")] * 2, (0, "package"), (1, "package")]
        assert {(d.period_ns, d.kind) for d in probe.domains} == {(1_000_000, DomainKind.COUNTER)}
        assert probe.raws() == [1000, 2000, 3000, 4000, 5000, 6000]


def test_a_package_that_amd_leaves_out_is_refused(tmp_path: Path) -> None:
    chip(tmp_path, 0, "amd_energy", energy1_label="Esocket0", energy1_input=1)
    with Probe(f"hwmon:{tmp_path}", TWO_PACKAGES) as probe:
        assert probe.error == -errno.ENOENT
        assert "no counter of package 1" in probe.why


def test_a_second_meter_is_not_added_to_the_first(tmp_path: Path) -> None:
    meter(tmp_path, number=2)
    meter(tmp_path, number=10)
    with Probe(f"hwmon:{tmp_path}") as probe:
        assert len(probe.domains) == 1
        assert "left out power_meter of hwmon10 (a second meter)" in probe.why


def test_chips_that_are_not_known_are_left_alone(tmp_path: Path) -> None:
    chip(tmp_path, 0, "amdgpu", power1_average=50 * UW)
    chip(tmp_path, 1, "BAT0", power1_input=9 * UW)
    with Probe(f"hwmon:{tmp_path}") as probe:
        assert probe.error == -errno.ENOENT
        assert "no meter that is known" in probe.why


def test_no_tree_at_all(tmp_path: Path) -> None:
    with Probe(f"hwmon:{tmp_path / 'none'}") as probe:
        assert probe.error == -errno.ENOENT
        assert "acpi_power_meter" in probe.why


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("-5000000", errno.EINVAL),
        ("much", errno.EINVAL),
        ("", errno.ENODATA),
        (str(2 * 10**12), errno.ERANGE),
        ("99999999999999999999999", errno.ERANGE),
    ],
)
def test_a_power_that_cannot_be_fails_and_is_made_up_for(
    tmp_path: Path, text: str, status: int
) -> None:
    folder = meter(tmp_path)
    with Probe(f"hwmon:{tmp_path}") as probe:
        first = probe.read()[0]
        write(folder / "power1_average", text)
        failed = later(probe)
        assert (failed.raw, failed.status) == (first.raw, status)
        write(folder / "power1_average", f"{250 * UW}")
        good = later(probe)
        assert good.status == 0
        assert_drawn(first, good, 250)


def test_after_a_long_hole_the_counter_starts_again(tmp_path: Path) -> None:
    folder = meter(tmp_path)
    with Probe(f"hwmon:{tmp_path}") as probe:
        probe.read()
        assert later(probe).raw > 0
        write(folder / "power1_average", "much")
        time.sleep(6 * PERIOD_NS * 1e-9)
        assert later(probe).status == errno.EINVAL
        write(folder / "power1_average", f"{250 * UW}")
        again = later(probe)
        assert (again.raw, again.status) == (0, errno.ENODATA)
        assert later(probe).status == 0


@pytest.mark.parametrize("text", ["", "0", "-1", "much", "9" * 30])
def test_a_meter_that_shows_no_power_is_not_opened(tmp_path: Path, text: str) -> None:
    meter(tmp_path, text)
    with Probe(f"hwmon:{tmp_path}") as probe:
        assert probe.error < 0
        assert "left out power_meter of hwmon0" in probe.why


def test_a_file_that_goes_away_does_not_end_the_reading(tmp_path: Path) -> None:
    folder = meter(tmp_path)
    with Probe(f"hwmon:{tmp_path}") as probe:
        probe.read()
        write(folder / "power1_average", "")
        (folder / "power1_average").unlink()
        assert later(probe).status == errno.ENODATA


def test_reads_go_on_confined(tmp_path: Path) -> None:
    meter(tmp_path)
    with Probe(f"hwmon:{tmp_path}", sanitized=False) as probe:
        probe.tell("confine")
        probe.read()
        assert later(probe).status == 0


def test_auto_takes_it_before_an_estimate(tmp_path: Path) -> None:
    meter(tmp_path)
    nothing = tmp_path / "nothing"
    with Probe(
        "auto", hwmon_root=tmp_path, powercap_root=nothing, perf_sysfs=nothing, why_bytes=4096
    ) as probe:
        assert (probe.name, probe.grade) == ("hwmon", Grade.MEASURED)
        assert probe.why.endswith("using hwmon")
