# SPDX-License-Identifier: Apache-2.0
"""CPU and topology, from made-up files and from this machine's."""

from __future__ import annotations

from pathlib import Path

import pytest

from qjoule.errors import QjouleError
from qjoule.machine.cpu import parse_cpu_list, read_cpu_info


def cpuinfo(vendor: str, family: int, model: int, stepping: int, flags: str = "fpu") -> str:
    block = (
        f"processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n"
        f"model name\t: Some CPU @ 2.00GHz\nstepping\t: {stepping}\nflags\t\t: {flags}\n"
    )
    return block + "\n" + block.replace("processor\t: 0", "processor\t: 1")


def machine(root: Path, text: str, packages: int = 1, cores: int = 2, threads: int = 2) -> Path:
    """Numbers siblings as Linux does: all first threads, then all second threads."""
    (root / "proc").mkdir(parents=True)
    (root / "proc/cpuinfo").write_text(text)
    total = packages * cores
    for cpu in range(total * threads):
        core = cpu % total
        folder = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "physical_package_id").write_text(f"{core // cores}\n")
        (folder / "core_id").write_text(f"{core % cores}\n")
        siblings = ",".join(str(core + n * total) for n in range(threads))
        (folder / "thread_siblings_list").write_text(siblings + "\n")
    (root / "sys/devices/system/cpu/cpu99").mkdir()  # offline
    (root / "sys/devices/system/cpu/cpufreq").mkdir()
    return root


def test_topology_of_two_packages(tmp_path: Path) -> None:
    info = read_cpu_info(machine(tmp_path, cpuinfo("GenuineIntel", 6, 143, 8), packages=2))
    assert info.packages == {0: (0, 1, 4, 5), 1: (2, 3, 6, 7)}
    assert info.cores == 4
    assert info.cpus[6].siblings == (2, 6)
    assert (info.cpus[6].package, info.cpus[6].core) == (1, 0)
    assert info.name == "Some CPU @ 2.00GHz"
    assert not info.hypervisor


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (("GenuineIntel", 6, 207, 2), "intel-emeraldrapids"),
        (("GenuineIntel", 6, 143, 8), "intel-sapphirerapids"),
        (("GenuineIntel", 6, 85, 4), "intel-skylake-server"),
        (("GenuineIntel", 6, 85, 7), "intel-cascadelake"),
        (("GenuineIntel", 6, 85, 11), "intel-cooperlake"),
        (("GenuineIntel", 6, 200, 10), None),  # not in the table
        (("AuthenticAMD", 23, 1, 2), "amd-epyc-gen1"),
        (("AuthenticAMD", 23, 49, 0), "amd-epyc-gen2"),
        (("AuthenticAMD", 25, 1, 1), "amd-epyc-gen3"),
        (("AuthenticAMD", 25, 17, 1), "amd-epyc-gen4"),
        (("AuthenticAMD", 25, 97, 2), "amd-zen4-client"),
        (("AuthenticAMD", 26, 2, 1), "amd-epyc-gen5"),
        (("AuthenticAMD", 6, 207, 2), None),
    ],
)
def test_microarchitecture(
    tmp_path: Path, key: tuple[str, int, int, int], expected: str | None
) -> None:
    info = read_cpu_info(machine(tmp_path, cpuinfo(*key)))
    assert info.microarchitecture == expected


def test_arm_server(tmp_path: Path) -> None:
    text = (
        "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU architecture: 8\n"
        "CPU variant\t: 0x3\nCPU part\t: 0xd0c\nCPU revision\t: 1\n"
    )
    info = read_cpu_info(machine(tmp_path, text, threads=1))
    assert (info.vendor, info.microarchitecture) == ("ARM", "arm-neoverse-n1")


def test_guest_is_seen_as_such(tmp_path: Path) -> None:
    flags = "fpu hypervisor lahf_lm"
    assert read_cpu_info(machine(tmp_path, cpuinfo("GenuineIntel", 6, 207, 2, flags))).hypervisor


@pytest.mark.parametrize("text", ["", "garbage", "model\t: x\ncpu family\t: \n", "\n\n: :\n"])
def test_cpuinfo_that_says_nothing(tmp_path: Path, text: str) -> None:
    info = read_cpu_info(machine(tmp_path, text))
    assert info.microarchitecture is None
    assert len(info.cpus) == 4


def test_package_minus_one_is_package_zero(tmp_path: Path) -> None:
    root = machine(tmp_path, cpuinfo("", 0, 0, 0))
    for path in root.glob("sys/devices/system/cpu/*/topology/physical_package_id"):
        path.write_text("-1\n")
    assert list(read_cpu_info(root).packages) == [0]


@pytest.mark.parametrize("file", ["physical_package_id", "core_id", "thread_siblings_list"])
@pytest.mark.parametrize("text", ["x", "1-y", None])
def test_broken_topology_is_an_error(tmp_path: Path, file: str, text: str | None) -> None:
    path = machine(tmp_path, "") / "sys/devices/system/cpu/cpu0/topology" / file
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    with pytest.raises(QjouleError, match="cpu0/topology cannot be understood"):
        read_cpu_info(tmp_path)


def test_no_sys_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(QjouleError, match="is /sys mounted"):
        read_cpu_info(tmp_path)


def test_cpu_list() -> None:
    assert parse_cpu_list("0-3,8\n") == (0, 1, 2, 3, 8)
    assert parse_cpu_list("\n") == ()
    with pytest.raises(ValueError, match="invalid literal"):
        parse_cpu_list("a-b")


def test_this_machine() -> None:
    info = read_cpu_info()
    online = parse_cpu_list(Path("/sys/devices/system/cpu/online").read_text())
    assert tuple(cpu.cpu for cpu in info.cpus) == online
    assert sorted(c for cpus in info.packages.values() for c in cpus) == list(online)
