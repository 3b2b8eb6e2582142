# SPDX-License-Identifier: Apache-2.0
"""CPU, topology and idle states, from made-up files, from this machine's, and in a trace's file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from calibrations import calibration, trace_meta
from energy_probe.probe import write
from qjoule.errors import QjouleError
from qjoule.machine.calibration import parse
from qjoule.machine.cpu import parse_cpu_list, read_cpu_info
from qjoule.machine.idle_states import MOST_STATES, check_idle_states, read_idle_states
from qjoule.trace.meta import IdleState, parse_meta

CPUS = "sys/devices/system/cpu"


def cpuinfo(vendor: str, family: int, model: int, stepping: int, flags: str = "fpu") -> str:
    block = (
        f"processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n"
        f"model name\t: Some CPU @ 2.00GHz\nstepping\t: {stepping}\nflags\t\t: {flags}\n"
    )
    return block + "\n" + block.replace("processor\t: 0", "processor\t: 1")


def machine(root: Path, text: str, packages: int = 1, cores: int = 2, threads: int = 2) -> Path:
    """Numbers siblings as Linux does: all first threads, then all second threads."""
    write(root / "proc/cpuinfo", text)
    total = packages * cores
    for cpu in range(total * threads):
        core = cpu % total
        folder = root / CPUS / f"cpu{cpu}/topology"
        write(folder / "physical_package_id", f"{core // cores}\n")
        write(folder / "core_id", f"{core % cores}\n")
        siblings = ",".join(str(core + n * total) for n in range(threads))
        write(folder / "thread_siblings_list", siblings + "\n")
    (root / CPUS / "cpu99").mkdir()  # offline
    (root / CPUS / "cpufreq").mkdir()
    return root


def test_topology_of_two_packages(tmp_path: Path) -> None:
    info = read_cpu_info(machine(tmp_path, cpuinfo("GenuineIntel", 6, 143, 8), packages=2))
    assert info.packages == {0: (0, 1, 4, 5), 1: (2, 3, 6, 7)}
    assert info.cores == 4
    assert info.cpus[6].siblings == (2, 6)
    assert (info.cpus[6].package, info.cpus[6].core) == (1, 0)
    assert info.name == "Some CPU @ 2.00GHz"
    assert not info.hypervisor
    (tmp_path / CPUS / "cpu0/topology/core_id").write_text("x")
    with pytest.raises(QjouleError, match="cpu0/topology cannot be understood"):
        read_cpu_info(tmp_path)


def test_arm_server_and_cpuinfo_that_says_nothing(tmp_path: Path) -> None:
    text = (
        "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU architecture: 8\n"
        "CPU variant\t: 0x3\nCPU part\t: 0xd0c\nCPU revision\t: 1\n"
    )
    info = read_cpu_info(machine(tmp_path, text, threads=1))
    assert (info.vendor, info.microarchitecture) == ("ARM", "arm-neoverse-n1")
    for nothing in ("", "garbage", "model\t: x\ncpu family\t: \n", "\n\n: :\n"):
        write(tmp_path / "proc/cpuinfo", nothing)
        info = read_cpu_info(tmp_path)
        assert (info.microarchitecture, len(info.cpus)) == (None, 2)


def test_this_machine() -> None:
    info = read_cpu_info()
    online = parse_cpu_list(Path("/sys/devices/system/cpu/online").read_text())
    assert tuple(cpu.cpu for cpu in info.cpus) == online
    assert sorted(c for cpus in info.packages.values() for c in cpus) == list(online)
    assert all(state.cpus >= 1 and state.name for state in read_idle_states())
    assert parse_cpu_list("0-3,8\n") == (0, 1, 2, 3, 8)


# ---- idle states ---------------------------------------------------------------------------------

FILES = ("name", "latency", "residency", "disable", "usage", "time")
POLL = ("POLL", "0", "0", "0", "7", "21")
C1 = ("C1", "2", "2", "0", "100", "1000")
C6 = ("C6", "133", "600", "1", "50", "90000")
STATES = (IdleState("C1", 2, 2, 4, 0, 9, 9), IdleState("C6", 133, None, 4, 4))


def state(root: Path, cpu: int, number: int, values: tuple[str | None, ...]) -> None:
    folder = root / CPUS / f"cpu{cpu}/cpuidle/state{number}"
    for file, value in zip(FILES, values, strict=True):
        if value is not None:
            write(folder / file, value + "\n")


def test_the_idle_states_of_a_machine(tmp_path: Path) -> None:
    for cpu in range(3):
        for number, values in enumerate((POLL, C1, C6)):
            state(tmp_path, cpu, number, values)
    write(tmp_path / CPUS / "cpuidle/current_driver", "intel_idle\n")
    assert read_idle_states(tmp_path) == (
        IdleState("POLL", 0, 0, cpus=3, disabled=0, usage=21, time_us=63),
        IdleState("C1", 2, 2, cpus=3, disabled=0, usage=300, time_us=3000),
        IdleState("C6", 133, 600, cpus=3, disabled=3, usage=150, time_us=270000),
    )
    line = check_idle_states(tmp_path)
    assert line.ok
    assert line.detail == "POLL 0 us, C1 2 us, C6 133 us, disabled (intel_idle)"


def test_names_are_safe_to_show_and_states_are_bounded(tmp_path: Path) -> None:
    state(tmp_path, 0, 0, ("\x1b[31m" + "C" * 5000, *C1[1:]))
    (one,) = read_idle_states(tmp_path)
    assert "\x1b" not in one.name + check_idle_states(tmp_path).detail
    assert len(one.name) <= 40
    for cpu in range(1, 20):
        for number in range(5):
            state(tmp_path, cpu, number, (f"C{cpu}-{number}", *C1[1:]))
    assert len(read_idle_states(tmp_path)) == MOST_STATES


def test_traces_and_calibrations_take_idle_states_along() -> None:
    meta, made = trace_meta(idle_states=STATES), replace(calibration(), idle_states=STATES)
    assert parse_meta(meta.to_json().encode()) == meta
    assert parse(made.to_json().encode()) == made
