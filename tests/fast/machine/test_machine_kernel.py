# SPDX-License-Identifier: Apache-2.0
"""Facts for `doctor`, over made-up file systems. Also: CPU, topology and idle states."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from calibrations import calibration, trace_meta
from energy_probe.probe import chip, pmu, write, zone
from qjoule.errors import QjouleError
from qjoule.machine import fexit, kernel
from qjoule.machine.calibration import parse
from qjoule.machine.facts import Check, parse_cpu_list, read_cpu_info
from qjoule.machine.idle_states import MOST_STATES, check_idle_states, read_idle_states
from qjoule.machine.perf_events import ask_kernel, hardware_counters, syscall_filter, try_event
from qjoule.machine.sources import (
    core_energy,
    dram_energy,
    host_tree,
    hwmon_meters,
    perf_pmu,
    powercap_tree,
)
from qjoule.trace.meta import IdleState
from qjoule.trace.meta_file import parse_meta

BTF, STATUS = "sys/kernel/btf/vmlinux", "proc/self/status"
RELEASE, BUILD = "proc/sys/kernel/osrelease", "proc/sys/kernel/version"
COMMAND_LINE = "proc/cmdline"
PARANOID = "proc/sys/kernel/perf_event_paranoid"
UNPRIVILEGED_BPF = "proc/sys/kernel/unprivileged_bpf_disabled"
UPROBE_PMU = "sys/bus/event_source/devices/uprobe/type"
ALL_CAPS, CAP_SYS_ADMIN = "CapEff:\t000001ffffffffff", "CapEff:\t0000000000200000"
THREE_CAPS = "CapEff:\t000000c000080000"  #: CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE
NO_CAPS = "CapEff:\t0000000000000000"
LOCKDOWN = "sys/kernel/security/lockdown"
CONFIDENTIAL = "confidentiality: BPF may not read kernel memory, so nothing can be traced"
DYNAMIC = "#1 SMP PREEMPT_DYNAMIC"
MAGIC = "\N{REPLACEMENT CHARACTER}"  #: stands for the first bytes of BTF
LOOP = MAGIC + "\0BPF_FUNC_loop\0"

Files = dict[str, str]


def tree(root: Path, files: Files) -> Path:
    for name, text in files.items():
        path = write(root / name, text + "\n")
        if text.startswith(MAGIC):
            path.write_bytes(b"\x9f\xeb\x01\x00" + text.removeprefix(MAGIC).encode())
    return root


@pytest.mark.parametrize(
    ("check", "files", "ok", "phrase"),
    [
        (kernel.kernel_release, {RELEASE: "6.1.0-28-amd64"}, True, "6.1.0-28-amd64"),
        (kernel.privileges, {STATUS: THREE_CAPS}, True, ""),
        (kernel.privileges, {STATUS: "CapEff:\t000000c000000000"}, False, ""),
        (kernel.btf, {}, False, "CONFIG_DEBUG_INFO_BTF"),
        (kernel.btf, {BTF: MAGIC}, True, ""),
        (kernel.uprobes, {}, False, ""),
        (kernel.uprobes, {UPROBE_PMU: "7"}, True, ""),
        (kernel.lockdown, {LOCKDOWN: "none [integrity] confidentiality"}, True, "nothing that"),
        (kernel.lockdown, {LOCKDOWN: "none integrity [confidentiality]"}, False, CONFIDENTIAL),
        (kernel.perf_event_paranoid, {PARANOID: "3", STATUS: NO_CAPS}, False, "paranoid=2"),
        (kernel.perf_event_paranoid, {PARANOID: "4", STATUS: CAP_SYS_ADMIN}, True, ""),
        (kernel.tracefs, {}, False, "mount -t tracefs none /sys/kernel/tracing"),
        (kernel.tracefs, {"sys/kernel/debug/tracing/trace": ""}, True, "sys/kernel/debug/tracing"),
        (kernel.cgroups, {"sys/fs/cgroup/cpu/tasks": ""}, True, "unified_cgroup_hierarchy=1"),
        (kernel.cgroups, {"sys/fs/cgroup/cgroup.controllers": "cpu io"}, True, "version 2"),
        (kernel.bpf_loop, {BTF: LOOP.replace("loop", "loopy")}, False, "MongoDB"),
        (kernel.bpf_loop, {BTF: LOOP}, True, ""),
        (kernel.bpf_jit, {"proc/sys/net/core/bpf_jit_enable": "0"}, False, ""),
        (kernel.bpf_jit, {"proc/sys/net/core/bpf_jit_enable": "1"}, True, ""),
        (kernel.unprivileged_bpf, {UNPRIVILEGED_BPF: "0"}, True, "allowed"),
        (kernel.unprivileged_bpf, {UNPRIVILEGED_BPF: "2"}, True, "disabled"),
    ],
)
def test_a_check(
    tmp_path: Path, check: Callable[[Path], Check], files: Files, ok: bool | None, phrase: str
) -> None:
    result = check(tree(tmp_path, files))
    assert result.ok is ok
    assert phrase in f"{result.detail}; {result.fix}"
    assert not (ok and result.fix)


def test_a_container_s_filter(tmp_path: Path) -> None:
    tree(tmp_path, {STATUS: "NoNewPrivs:\t1\nSeccomp:\t0"})
    assert not syscall_filter(tmp_path, lambda: errno.EPERM)
    tree(tmp_path, {STATUS: "NoNewPrivs:\t1\nSeccomp:\t2"})
    for error, ok in ((errno.EINVAL, True), (errno.EPERM, False), (errno.ENOSYS, False)):
        (check,) = syscall_filter(tmp_path, partial(int, error))
        assert check.ok is ok
        assert ok or "packaging/oci/seccomp.json" in check.fix
    assert ask_kernel() == errno.EINVAL, "the kernel answers whatever the rights"


def test_uprobes_need_the_rights_of_the_process_that_attaches_them(tmp_path: Path) -> None:
    tree(tmp_path, {UPROBE_PMU: "7"})
    assert kernel.uprobes(tmp_path, 12).ok is True, "as far as they can be told"
    tree(tmp_path, {"proc/12/status": THREE_CAPS})
    assert "CAP_SYS_ADMIN" in kernel.uprobes(tmp_path, 12).fix
    tree(tmp_path, {"proc/12/status": ALL_CAPS})
    assert kernel.uprobes(tmp_path, 12).ok is True
    tree(tmp_path, {"proc/12/status": THREE_CAPS, BTF: MAGIC + "\0bpf_uprobe_multi_link\0"})
    assert kernel.uprobes(tmp_path, 12).ok is True, "links need no more than the programs"


def test_tracepoints(tmp_path: Path) -> None:
    assert {c.ok for c in kernel.tracepoints(tmp_path)} == {None}
    tree(tmp_path, {BTF: MAGIC + "\0btf_trace_sched_switch\0"})
    checks = {c.name: c for c in kernel.tracepoints(tmp_path)}
    assert checks["tracepoint sched_switch"].ok is True
    assert checks["tracepoint sock_recv_length"].ok is False
    assert "6.3" in checks["tracepoint sock_recv_length"].fix


@pytest.mark.parametrize(
    ("build", "files", "how"),
    [
        ("#1 SMP Debian", {}, "voluntary"),
        ("#1 SMP PREEMPT Arch", {}, "full"),
        ("#1 SMP PREEMPT_RT Debian", {COMMAND_LINE: "preempt=voluntary"}, "full"),
        (DYNAMIC, {COMMAND_LINE: "quiet preempt=full"}, "full"),
        (DYNAMIC, {"boot/config-6.1": "CONFIG_PREEMPT_NONE=y"}, "none"),
        (DYNAMIC, {"boot/config-6.1": "CONFIG_PREEMPT=y", COMMAND_LINE: "preempt=none"}, "none"),
        (DYNAMIC, {"sys/kernel/debug/sched/preempt": "none (voluntary) full"}, "voluntary"),
    ],
)
def test_preemption(tmp_path: Path, build: str, files: Files, how: str) -> None:
    assert fexit.preemption(tree(tmp_path, {RELEASE: "6.1", BUILD: build} | files)) == how


def test_which_programs_the_tracer_loads(tmp_path: Path) -> None:
    """Linux 5.17 and 5.18 have loops, and get the programs for early kernels."""
    loop, data = "BPF_FUNC_loop", "BPF_FUNC_dynptr_data"
    cases = [("", "2", True), (loop, "2", True), (loop, "0", False), (data, "0", True)]
    for helpers, disabled, early in (*cases, (f"{loop}\0{data}", "2", False)):
        tree(tmp_path, {UNPRIVILEGED_BPF: disabled})
        assert kernel.early(tmp_path, f"\0{helpers}\0".encode()) is early


@pytest.mark.parametrize(("error", "ok"), [(0, True), (errno.ENOENT, False), (errno.EACCES, None)])
def test_hardware_counters(error: int, ok: bool | None) -> None:
    checks = hardware_counters(lambda _type, _config: error)
    assert [check.name for check in checks] == [
        f"counter {name}" for name in ("cycles", "instructions", "llc_misses")
    ]
    assert {check.ok for check in checks} == {ok}


def test_sources_that_a_machine_has(tmp_path: Path) -> None:
    root = tmp_path / "sys/class/powercap"
    assert powercap_tree(tmp_path).ok is False
    zone(root, "intel-rapl-mmio:0", "package-0", 1, 1)
    assert powercap_tree(tmp_path).ok is False
    zone(root, "intel-rapl:0", "package-0", 1, 1)
    zone(root, "intel-rapl:0:0", "core", 1, 1)
    zone(root, "intel-rapl:1", "psys", 1, 1)
    assert powercap_tree(tmp_path) == Check("powercap", True, "package-0, psys")
    assert "hypervisor" in host_tree(tmp_path).fix
    zone(tmp_path, "intel-rapl:0", None, 1, None)
    assert host_tree(tmp_path) == Check("host energy", True, "intel-rapl:0")
    folder = tmp_path / "sys/bus/event_source/devices/power"
    assert perf_pmu(tmp_path).ok is False
    pmu(folder, "0", {"energy-psys": "event=0x05"})
    assert perf_pmu(tmp_path).detail == "energy-psys, none of a package"
    assert perf_pmu(tmp_path).ok is False
    assert core_energy(tmp_path) is None, "it has a line only where the CPUs have counters"
    write(tmp_path / "proc/cpuinfo", "model name\t: AMD EPYC 7502 32-Core Processor\n")
    assert "arXiv:2108.00808" in getattr(dram_energy(tmp_path), "detail", "")
    fix = "Linux 6.13 or later has it"
    assert getattr(core_energy(tmp_path), "fix", None) == f"modprobe rapl; {fix}"
    pmu(folder, "0", {"energy-pkg": "event=0x02"})
    assert perf_pmu(tmp_path) == Check("perf energy", True, "energy-pkg, energy-psys")
    assert getattr(core_energy(tmp_path), "fix", None) == fix
    cores = tmp_path / "sys/bus/event_source/devices/power_core"
    pmu(cores, "0-3,8", {"energy-core": "event=0x01"})
    assert core_energy(tmp_path) == Check("core energy", True, "energy-core of 5 cores")
    write(cores / "cpumask", "some\n")
    assert getattr(core_energy(tmp_path), "ok", None) is False
    root = tmp_path / "sys/class/hwmon"
    chip(root, 1, "BAT0", power1_average=9_000_000)
    assert hwmon_meters(tmp_path) is None, "it has a line only where there are some"
    chip(root, 2, "power_meter", power1_average=250_000_000)
    chip(root, 3, "amd_energy", energy1_input=1)
    assert hwmon_meters(tmp_path) == Check("hwmon", True, "amd_energy, power_meter")


def test_every_check_has_a_line_on_a_system_that_lacks_everything(tmp_path: Path) -> None:
    """`doctor` writes the word "unknown" before those that could not be made."""
    checks = kernel.check_machine(tmp_path, tmp_path)
    assert len({check.name for check in checks}) == len(checks)
    assert all(check.detail and "\n" not in check.detail + check.fix for check in checks)
    assert all(check.fix for check in checks if check.ok is False)
    unknown = [check for check in checks if check.ok is None]
    assert {"kernel", "privileges", "lockdown"} <= {check.name for check in unknown}
    assert not [check for check in unknown if "unknown" in check.detail]


@pytest.mark.skipif(os.geteuid() != 0, reason="system-wide perf events need root")
def test_this_machine() -> None:
    checks = {check.name: check for check in kernel.check_machine()}
    assert checks["kernel"].detail == os.uname().release
    assert checks["privileges"].ok is True
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert try_event(1, 0) == 0  # the software CPU clock is always there
    assert try_event(1, 0xFFFF) != 0
    assert len(list(Path("/proc/self/fd").iterdir())) == before


# --------------------------------------------------------------------------------------------------
#
# CPU, topology and idle states, from made-up files, from this machine's, and in a trace's file.

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


def test_the_cpu_of_this_machine() -> None:
    info = read_cpu_info()
    online = parse_cpu_list(Path("/sys/devices/system/cpu/online").read_text())
    assert tuple(cpu.cpu for cpu in info.cpus) == online
    assert sorted(c for cpus in info.packages.values() for c in cpus) == list(online)
    assert all(state.cpus >= 1 and state.name for state in read_idle_states())
    assert parse_cpu_list("0-3,8\n") == (0, 1, 2, 3, 8)
    for wrong in ("0-99999999999", "0-65536", "3-", "-3", "1,,2", "a"):
        with pytest.raises(ValueError, match="CPUs"):
            parse_cpu_list(wrong)


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
    (idle_state,) = read_idle_states(tmp_path)
    assert "\x1b" not in idle_state.name + check_idle_states(tmp_path).detail
    assert len(idle_state.name) <= 40
    for cpu in range(1, 20):
        for number in range(5):
            state(tmp_path, cpu, number, (f"C{cpu}-{number}", *C1[1:]))
    assert len(read_idle_states(tmp_path)) == MOST_STATES


def test_traces_and_calibrations_take_idle_states_along() -> None:
    meta, calibrated = trace_meta(idle_states=STATES), replace(calibration(), idle_states=STATES)
    assert parse_meta(meta.to_json().encode()) == meta
    assert parse(calibrated.to_json().encode()) == calibrated
