# SPDX-License-Identifier: Apache-2.0
"""`powercap` and `host`: RAPL zones in sysfs, intact and broken."""

from __future__ import annotations

import errno
import os
import shutil
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
    refusal,
    write,
    zone,
)
from qjoule.contract import DomainKind, Grade
from qjoule.machine.sources import host_tree


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """One Intel package with core and DRAM."""
    zone(tmp_path, "intel-rapl:0", "package-0", 1000, INTEL_MAX_UJ)
    zone(tmp_path, "intel-rapl:0:0", "core", 600, INTEL_MAX_UJ)
    zone(tmp_path, "intel-rapl:0:1", "dram", 200, 65712999613)
    (tmp_path / "intel-rapl").mkdir()  # the control type itself
    return tmp_path


def domains(probe: Probe) -> list[tuple[int, str]]:
    return [(d.package, d.name) for d in probe.domains]


def test_one_package(root: Path) -> None:
    with Probe(f"powercap:{root}") as probe:
        assert (probe.error, probe.name, probe.grade) == (0, "powercap", Grade.MEASURED)
        assert domains(probe) == [(0, "package"), (0, "core"), (0, "dram")]
        assert {d.unit_j for d in probe.domains} == {1e-6}
        assert {(d.period_ns, d.kind) for d in probe.domains} == {(1_000_000, DomainKind.COUNTER)}
        assert probe.raws() == [1000, 600, 200]
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
    write(root / "intel-rapl:0:0/max_energy_range_uj", "999999")  # of another driver
    with Probe(f"powercap:{root}") as probe:
        assert [d.range for d in probe.domains[:2]] == [round(2**32 * unit_nj / 1000), 1000000]


THREE_DIES = "0:0:0,1:0:1,2:1:2"


@pytest.fixture
def dies(tmp_path: Path) -> Path:
    """Package 0 has two dies with DRAM each, and package 1 one; each has a zone of the platform."""
    names = ["package-0-die-0", "package-0-die-1", "package-1-die-2", "psys", "psys-0", "psys-1"]
    for index, name in enumerate(names):
        zone(tmp_path, f"intel-rapl:{index}", name, index, INTEL_MAX_UJ)
    for index in (0, 1):
        zone(tmp_path, f"intel-rapl:{index}:0", "dram", 10 + index, INTEL_MAX_UJ)
    return tmp_path


def test_each_die_of_a_package_is_a_counter_and_the_platform_one(dies: Path) -> None:
    with Probe(f"powercap:{dies}", THREE_DIES, why_bytes=4096) as probe:
        assert [(d.package, d.die, d.name) for d in probe.domains] == [
            *((0, die, name) for die in (0, 1) for name in ("package", "dram")),
            *((1, 2, "package"), (0, None, "psys"), (1, None, "psys")),
        ]
        assert probe.raws() == [0, 10, 1, 11, 2, 3, 5]
        assert "left out psys-0 (intel-rapl:4 counts what an earlier zone counts)" in probe.why
    with Probe(f"powercap:{dies}", THREE_DIES, of_packages="yes") as probe:  # AMD, Linux 6.9
        assert [(d.package, d.die, d.name) for d in probe.domains][:3] == [
            *((0, None, "package"), (0, None, "dram"), (1, None, "package")),
        ]


def test_a_die_without_a_counter_is_refused_unless_it_is_offline(dies: Path) -> None:
    for directory in ("intel-rapl:0", "intel-rapl:0:0"):
        shutil.rmtree(dies / directory)
    error, why = refusal(f"powercap:{dies}", THREE_DIES)
    assert (error, "no counter of die 0 of package 0" in why) == (errno.ENOENT, True)
    for cpus in ("1:0:1,2:1:2", "1:0,2:1"):  # no die is known on kernels before 5.2
        with Probe(f"powercap:{dies}", cpus) as probe:
            assert [d.die for d in probe.domains] == [1, 1, 2, None, None]


def test_of_several_control_types_one_is_read(tmp_path: Path) -> None:
    for value, kind in enumerate(["intel-rapl-mmio", "intel-rapl-tpmi", "intel-rapl"]):
        zone(tmp_path, f"{kind}:0", "package-0", value, INTEL_MAX_UJ)
        zone(tmp_path, f"{kind}:0:0", "dram", 10 + value, INTEL_MAX_UJ)
        assert host_tree(tmp_path).ok is (value > 0), "mmio shows what another control type has"
        if value:
            with Probe(f"powercap:{tmp_path}") as probe:
                assert domains(probe) == [(0, "package"), (0, "dram")]
                assert probe.raws() == [value, 10 + value]


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        *(("energy_uj", text, "uj is not a number") for text in ("", "-5", "9" * 30)),
        *(("energy_uj", "pipe", ""), ("max_energy_range_uj", "0", "uj is not a number")),
        ("name", "\x1b[2J", "intel-rapl:0 is called '?[2J'"),
        ("name", "package-7", "intel-rapl:0 is package 7, which this machine does not have"),
        ("energy_uj", None, "intel-rapl:0/energy_uj: No such file"),
    ],
)
def test_a_broken_package_is_refused(root: Path, file: str, text: str | None, reason: str) -> None:
    path = root / "intel-rapl:0" / file
    if text is None:
        path.unlink()
    elif text == "pipe":
        path.unlink()
        os.mkfifo(path)  # must not hang
    else:
        write(path, text)
    error, why = refusal(f"powercap:{root}")
    assert error == (errno.ENOENT if text is None else errno.EINVAL)
    assert reason in why
    assert why.startswith("powercap: ")


def test_each_package_is_counted_exactly_once(root: Path) -> None:
    error, why = refusal(f"powercap:{root}", TWO_PACKAGES)
    assert (error, "no counter of package 1" in why) == (errno.ENOENT, True)
    zone(root, "intel-rapl:1", "package-0", 1000, INTEL_MAX_UJ)
    error, why = refusal(f"powercap:{root}")
    assert (error, "intel-rapl:1 counts what an earlier" in why) == (errno.EEXIST, True)


def test_a_part_that_is_broken_unknown_or_there_twice_is_left_out_and_named(root: Path) -> None:
    write(root / "intel-rapl:0:0/energy_uj", "garbage")
    zone(root, "intel-rapl:0:2", "dram", 200, INTEL_MAX_UJ)
    zone(root, "intel-rapl:0:3", "\x1b[31mred", 200, INTEL_MAX_UJ)
    with Probe(f"powercap:{root}", why_bytes=4096) as probe:
        assert domains(probe) == [(0, "package"), (0, "dram")]
        assert "left out core (intel-rapl:0:0/energy_uj is not a number)" in probe.why
        assert "left out dram (intel-rapl:0:2 is the second)" in probe.why
        assert "left out ?[31mred (intel-rapl:0:3 is not core, uncore or dram)" in probe.why


def test_wraps_resets_and_failures_are_recorded_as_they_are(root: Path) -> None:
    counter = root / "intel-rapl:0/energy_uj"
    failures = {"": errno.ENODATA, "abc": errno.EINVAL, "1 2": errno.EINVAL, "9" * 25: errno.ERANGE}
    with Probe(f"powercap:{root}") as probe:
        for value in (262143328000, 900, 900, 0, 5, INTEL_MAX_UJ + 10):
            write(counter, f"{value}\n")
            assert probe.raws()[0] == value
        for text, status in failures.items():
            write(counter, text)
            assert [r.status for r in probe.read()] == [status, 0, 0]
        write(counter, "1500\n")
        assert probe.raws()[0] == 1500
        shutil.rmtree(root / "intel-rapl:0:1")
        assert [r.status for r in probe.read()][:2] == [0, 0]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give root up")
def test_reads_go_on_without_root_and_confined() -> None:
    with open_folder() as folder:
        counter = zone(folder, "intel-rapl:0", "package-0", 1, INTEL_MAX_UJ)
        counter.chmod(0o400)
        with Probe(f"powercap:{folder}", wrapper=UNPRIVILEGED) as probe:
            assert probe.error == -errno.EACCES
            assert probe.why == "powercap: intel-rapl:0/energy_uj: Permission denied; run as root"
        with Probe(f"powercap:{folder}", sanitized=False) as probe:
            probe.tell("drop")
            probe.tell("confine")
            write(counter, "22\n")
            assert probe.raws() == [22] and probe.tell("look") == []
            for name in ("intel-rapl:1", "intel-rapl:1:0", "intel-rapl:0:0", "intel-rapl-mmio:0"):
                (folder / name).mkdir()
            assert probe.tell("look") == ["intel-rapl:0:0", "intel-rapl:1"]
            assert probe.tell("look") == []


def test_a_host_s_tree_is_an_estimate_and_may_lack_names_and_ranges(tmp_path: Path) -> None:
    counter = zone(tmp_path, "intel-rapl:0", None, 40, None)
    (tmp_path / "intel-rapl:0:0").mkdir()
    write(tmp_path / "intel-rapl:0/period_ms", "100\n")
    error, why = refusal(f"host:{tmp_path / 'absent'}")
    assert (error, "; mount the tree that the hypervisor exports" in why) == (errno.ENOENT, True)
    with Probe(f"host:{tmp_path}") as probe:
        assert (probe.error, probe.name, probe.grade) == (0, "host", Grade.ESTIMATED)
        assert domains(probe) == [(0, "package")]
        assert (probe.domains[0].range, probe.domains[0].period_ns) == (0, 100_000_000)
        assert probe.raws() == [40]
        write(counter, "")
        assert [reading.status for reading in probe.read()] == [errno.ENODATA]
        write(counter, f"{41:020d}\n")
        assert probe.raws() == [41]
