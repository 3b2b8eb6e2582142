# SPDX-License-Identifier: Apache-2.0
"""Facts for `doctor`, over made-up file systems."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from energy_probe.probe import chip, pmu, write, zone
from qjoule.machine import fexit, kernel
from qjoule.machine.check import Check
from qjoule.machine.counters import ask_kernel, hardware_counters, syscall_filter, try_event
from qjoule.machine.sources import dram_energy, host_tree, hwmon_meters, perf_pmu, powercap_tree

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
    ("check", "files", "ok", "words"),
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
    tmp_path: Path, check: Callable[[Path], Check], files: Files, ok: bool | None, words: str
) -> None:
    found = check(tree(tmp_path, files))
    assert found.ok is ok
    assert words in f"{found.detail}; {found.fix}"
    assert not (ok and found.fix)


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
    write(tmp_path / "proc/cpuinfo", "model name\t: AMD EPYC 7502 32-Core Processor\n")
    assert "arXiv:2108.00808" in getattr(dram_energy(tmp_path), "detail", "")
    pmu(folder, "0", {"energy-pkg": "event=0x02"})
    assert perf_pmu(tmp_path) == Check("perf energy", True, "energy-pkg, energy-psys")
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
