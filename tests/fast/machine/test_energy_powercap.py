# SPDX-License-Identifier: Apache-2.0
"""`powercap` and `host`: RAPL zones in sysfs, intact and broken."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from energy_probe.probe import (
    AMD_MAX_UJ,
    INTEL_MAX_UJ,
    TWO_PACKAGES,
    UNPRIVILEGED,
    Probe,
    open_folder,
    write,
    zone,
)
from qjoule.contract import DomainKind, Grade

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give root up")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """One Intel package with core and DRAM."""
    zone(tmp_path, "intel-rapl:0", "package-0", 1000, INTEL_MAX_UJ)
    zone(tmp_path, "intel-rapl:0:0", "core", 600, INTEL_MAX_UJ)
    zone(tmp_path, "intel-rapl:0:1", "dram", 200, 65712999613)
    (tmp_path / "intel-rapl").mkdir()  # the control type itself
    return tmp_path


@pytest.fixture
def open_root() -> Iterator[Path]:
    with open_folder() as folder:
        yield folder


def shown(probe: Probe) -> list[tuple[int, str]]:
    return [(d.package, d.name) for d in probe.domains]


def test_one_package(root: Path) -> None:
    with Probe(f"powercap:{root}") as probe:
        assert (probe.error, probe.name, probe.grade) == (0, "powercap", Grade.MEASURED)
        assert shown(probe) == [(0, "package"), (0, "core"), (0, "dram")]
        assert {d.unit_j for d in probe.domains} == {1e-6}
        assert {(d.period_ns, d.kind) for d in probe.domains} == {(1_000_000, DomainKind.COUNTER)}
        assert probe.raws() == [1000, 600, 200]
        write(root / "intel-rapl:0/energy_uj", "1234567\n")
        assert probe.raws() == [1234567, 600, 200]


def test_time_of_a_reading_lies_in_its_window(root: Path) -> None:
    with Probe(f"powercap:{root}") as probe:
        first, second = probe.read(), probe.read()
    ends = [(r.t_ns - r.half_width_ns, r.t_ns + r.half_width_ns) for r in first + second]
    for (_, before_end), (after_start, _) in pairwise(ends):
        assert before_end <= after_start + 2  # halves are rounded down


@pytest.mark.parametrize(
    ("max_uj", "unit_nj"),
    [(INTEL_MAX_UJ, 61035), (AMD_MAX_UJ, 15258), (65712999613, 15300), (4294967295000000, 10**9)],
)
def test_counter_wraps_one_unit_after_its_maximum(root: Path, max_uj: int, unit_nj: int) -> None:
    assert (2**32 - 1) * unit_nj // 1000 == max_uj  # the driver's arithmetic
    write(root / "intel-rapl:0/max_energy_range_uj", str(max_uj))
    with Probe(f"powercap:{root}") as probe:
        assert probe.domains[0].range == round(2**32 * unit_nj / 1000)


def test_range_of_another_driver_is_taken_as_it_is(root: Path) -> None:
    write(root / "intel-rapl:0/max_energy_range_uj", "999999")
    with Probe(f"powercap:{root}") as probe:
        assert probe.domains[0].range == 1000000


def test_two_packages_with_psys_and_mmio_twins(root: Path) -> None:
    zone(root, "intel-rapl:1", "package-1", 2000, INTEL_MAX_UJ)
    zone(root, "intel-rapl:1:0", "dram", 300, INTEL_MAX_UJ)
    zone(root, "intel-rapl:2", "psys", 9000, INTEL_MAX_UJ)
    zone(root, "intel-rapl:3", "psys-1", 9001, INTEL_MAX_UJ)
    zone(root, "intel-rapl-mmio:0", "package-0", 1000, INTEL_MAX_UJ)
    zone(root, "intel-rapl-mmio:0:0", "dram", 200, INTEL_MAX_UJ)
    with Probe(f"powercap:{root}", TWO_PACKAGES) as probe:
        assert shown(probe) == [
            (0, "package"),
            (0, "core"),
            (0, "dram"),
            (1, "package"),
            (1, "dram"),
            (0, "psys"),
            (1, "psys"),
        ]
        assert probe.raws() == [1000, 600, 200, 2000, 300, 9000, 9001]


def test_amd_package_has_no_dram(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0", 77, AMD_MAX_UJ)
    zone(tmp_path, "intel-rapl:0:0", "core", 33, AMD_MAX_UJ)
    with Probe(f"powercap:{tmp_path}") as probe:
        assert shown(probe) == [(0, "package"), (0, "core")]


def test_dies_of_a_package_are_counters_of_one_package(tmp_path: Path) -> None:
    for index, name in enumerate(["package-0-die-0", "package-0-die-1", "package-1-die-0"]):
        zone(tmp_path, f"intel-rapl:{index}", name, index, INTEL_MAX_UJ)
    zone(tmp_path, "intel-rapl:1:0", "core", 5, INTEL_MAX_UJ)
    with Probe(f"powercap:{tmp_path}", TWO_PACKAGES) as probe:
        assert shown(probe) == [(0, "package"), (0, "package"), (0, "core"), (1, "package")]


def test_zone_numbers_sort_as_numbers(tmp_path: Path) -> None:
    for number in range(12):
        zone(tmp_path, f"intel-rapl:{number}", f"package-{number}", number, INTEL_MAX_UJ)
    cpus = ",".join(f"{n}:{n}" for n in range(12))
    with Probe(f"powercap:{tmp_path}", cpus) as probe:
        assert probe.raws() == list(range(12))


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("energy_uj", "", "intel-rapl:0/energy_uj is not a number"),
        ("energy_uj", "abc", "intel-rapl:0/energy_uj is not a number"),
        ("energy_uj", "-5", "intel-rapl:0/energy_uj is not a number"),
        ("energy_uj", "12 34", "intel-rapl:0/energy_uj is not a number"),
        ("energy_uj", "9" * 30, "intel-rapl:0/energy_uj is not a number"),
        ("max_energy_range_uj", "0", "intel-rapl:0/max_energy_range_uj is not a number"),
        ("max_energy_range_uj", "x", "intel-rapl:0/max_energy_range_uj is not a number"),
        ("name", "cores", "intel-rapl:0 is called 'cores', not package-N or psys"),
        ("name", "package-0x", "not package-N or psys"),
        ("name", "\x1b[2J", "intel-rapl:0 is called '?[2J'"),
        ("name", "package-7", "intel-rapl:0 is package 7, which this machine does not have"),
        ("name", "", "intel-rapl:0 has no name"),
    ],
)
def test_package_that_lies_is_refused(root: Path, file: str, text: str, expected: str) -> None:
    write(root / "intel-rapl:0" / file, text)
    with Probe(f"powercap:{root}") as probe:
        assert probe.error == -errno.EINVAL
        assert expected in probe.why
        assert probe.why.startswith("powercap: ")


def test_package_without_counter_is_refused(root: Path) -> None:
    (root / "intel-rapl:0/energy_uj").unlink()
    with Probe(f"powercap:{root}") as probe:
        assert probe.error == -errno.ENOENT
        assert "intel-rapl:0/energy_uj: No such file" in probe.why


def test_package_without_range_is_refused(root: Path) -> None:
    (root / "intel-rapl:0/max_energy_range_uj").unlink()
    with Probe(f"powercap:{root}") as probe:
        assert probe.error == -errno.ENOENT
        assert "intel-rapl:0/max_energy_range_uj: No such file" in probe.why


def test_pipe_as_counter_does_not_hang(root: Path) -> None:
    (root / "intel-rapl:0/energy_uj").unlink()
    os.mkfifo(root / "intel-rapl:0/energy_uj")
    with Probe(f"powercap:{root}") as probe:
        assert probe.error == -errno.EINVAL


def test_package_without_zone_is_refused(root: Path) -> None:
    with Probe(f"powercap:{root}", TWO_PACKAGES) as probe:
        assert probe.error == -errno.ENOENT
        assert "no counter of package 1" in probe.why


def test_package_counted_twice_is_refused(root: Path) -> None:
    zone(root, "intel-rapl:1", "package-0", 1000, INTEL_MAX_UJ)
    with Probe(f"powercap:{root}") as probe:
        assert probe.error == -errno.EINVAL
        assert "two zones are called 'package-0'" in probe.why


def test_broken_dram_is_left_out_and_named(root: Path) -> None:
    write(root / "intel-rapl:0:1/energy_uj", "garbage")
    with Probe(f"powercap:{root}") as probe:
        assert shown(probe) == [(0, "package"), (0, "core")]
        assert "left out dram (intel-rapl:0:1/energy_uj is not a number)" in probe.why


def test_part_that_is_unknown_or_there_twice_is_left_out(root: Path) -> None:
    zone(root, "intel-rapl:0:2", "dram", 200, INTEL_MAX_UJ)
    zone(root, "intel-rapl:0:3", "\x1b[31mred", 200, INTEL_MAX_UJ)
    with Probe(f"powercap:{root}", why_bytes=4096) as probe:
        assert shown(probe) == [(0, "package"), (0, "core"), (0, "dram")]
        assert "left out dram (intel-rapl:0:2 is the second)" in probe.why
        assert "left out ?[31mred (intel-rapl:0:3 is not core, uncore or dram)" in probe.why


def test_more_zones_than_room(root: Path) -> None:
    for number in range(33):
        zone(root, f"intel-rapl:{number}", f"package-{number}", 1, INTEL_MAX_UJ)
        zone(root, f"intel-rapl:{number}:0", "core", 1, INTEL_MAX_UJ)
    cpus = ",".join(f"{n}:{n}" for n in range(33))
    with Probe(f"powercap:{root}", cpus) as probe:
        assert probe.error == -errno.E2BIG
        assert "more than 64 zones" in probe.why
    for number in range(300):
        (root / f"intel-rapl:99:{number}").mkdir()
    with Probe(f"powercap:{root}", cpus) as probe:
        assert probe.error == -errno.E2BIG


@pytest.mark.parametrize("make", [True, False])
def test_no_zones_says_what_to_do(tmp_path: Path, make: bool) -> None:
    place = tmp_path / "powercap"
    if make:
        place.mkdir()
    with Probe(f"powercap:{place}", why_bytes=4096) as probe:
        assert probe.error == -errno.ENOENT
        assert probe.why == (
            f"powercap: no intel-rapl zones under {place}"
            "; modprobe intel_rapl_msr, or in a VM use --energy auto or estimated"
        )


def test_wrap_reset_and_stop_are_recorded_as_they_are(root: Path) -> None:
    values = [262143328000, 900, 900, 0, 5, INTEL_MAX_UJ + 10]
    with Probe(f"powercap:{root}") as probe:
        for value in values:
            write(root / "intel-rapl:0/energy_uj", f"{value}\n")
            assert probe.raws()[0] == value


@pytest.mark.parametrize(
    ("text", "status"),
    [("", errno.ENODATA), ("abc", errno.EINVAL), ("1 2", errno.EINVAL), ("9" * 25, errno.ERANGE)],
)
def test_failed_reading_has_a_status_and_then_recovers(root: Path, text: str, status: int) -> None:
    with Probe(f"powercap:{root}") as probe:
        write(root / "intel-rapl:0/energy_uj", text)
        assert [r.status for r in probe.read()] == [status, 0, 0]
        write(root / "intel-rapl:0/energy_uj", "1500\n")
        assert probe.raws()[0] == 1500


def test_zone_that_vanishes_keeps_the_rest_alive(root: Path) -> None:
    with Probe(f"powercap:{root}") as probe:
        shutil.rmtree(root / "intel-rapl:0:1")
        assert [r.status for r in probe.read()][:2] == [0, 0]


@as_root
def test_not_root_says_so(open_root: Path) -> None:
    zone(open_root, "intel-rapl:0", "package-0", 1, INTEL_MAX_UJ).chmod(0o400)
    with Probe(f"powercap:{open_root}", wrapper=UNPRIVILEGED) as probe:
        assert probe.error == -errno.EACCES
        assert probe.why == "powercap: intel-rapl:0/energy_uj: Permission denied; run as root"


@as_root
def test_reads_go_on_without_root_and_confined(open_root: Path) -> None:
    zone(open_root, "intel-rapl:0", "package-0", 1, INTEL_MAX_UJ).chmod(0o400)
    with Probe(f"powercap:{open_root}", sanitized=False) as probe:
        probe.tell("drop")
        probe.tell("confine")
        write(open_root / "intel-rapl:0/energy_uj", "22\n")
        assert probe.raws() == [22]


def test_host_is_an_estimate(root: Path) -> None:
    with Probe(f"host:{root}") as probe:
        assert (probe.error, probe.name, probe.grade) == (0, "host", Grade.ESTIMATED)


def test_host_tree_without_name_and_range(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", None, 40, None)
    (tmp_path / "intel-rapl:0:0").mkdir()
    with Probe(f"host:{tmp_path}") as probe:
        assert shown(probe) == [(0, "package")]
        assert probe.domains[0].range == 0
        assert probe.raws() == [40]


def test_host_tree_says_how_often_it_moves(tmp_path: Path) -> None:
    write(zone(tmp_path, "intel-rapl:0", None, 40, None).with_name("period_ms"), "100\n")
    with Probe(f"host:{tmp_path}") as probe:
        assert probe.domains[0].period_ns == 100_000_000


@pytest.mark.parametrize("period", ["", "0", "-5", "60001", "1e3", "99999999999999999999", "ms"])
def test_a_period_that_cannot_be_is_refused(tmp_path: Path, period: str) -> None:
    write(zone(tmp_path, "intel-rapl:0", None, 40, None).with_name("period_ms"), period)
    with Probe(f"host:{tmp_path}") as probe:
        assert probe.error < 0
        assert "intel-rapl:0/period_ms" in probe.why


def test_the_kernels_tree_has_no_period(root: Path) -> None:
    write(root / "intel-rapl:0/period_ms", "100\n")
    with Probe(f"powercap:{root}") as probe:
        assert probe.domains[0].period_ns == 1_000_000


def test_an_emptied_counter_is_a_failed_reading_until_it_is_filled(tmp_path: Path) -> None:
    counter = zone(tmp_path, "intel-rapl:0", None, 40, None)
    with Probe(f"host:{tmp_path}") as probe:
        write(counter, "")
        assert [reading.status for reading in probe.read()] == [errno.ENODATA]
        write(counter, f"{41:020d}\n")
        assert probe.raws() == [41]


def test_host_without_tree_says_what_to_do(tmp_path: Path) -> None:
    with Probe(f"host:{tmp_path / 'x'}") as probe:
        assert probe.error == -errno.ENOENT
        assert probe.why.endswith(
            "mount the tree that the hypervisor exports, or use --energy auto"
        )


@pytest.mark.parametrize("room", [0, 1, 2, 5, 40])
def test_line_never_overruns(tmp_path: Path, room: int) -> None:
    with Probe(f"powercap:{tmp_path / ('long' * 60)}", why_bytes=room) as probe:
        assert len(probe.why) <= max(room - 1, 0)
        assert room < 5 or probe.why.endswith("...")
