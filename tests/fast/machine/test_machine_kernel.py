# SPDX-License-Identifier: Apache-2.0
"""Facts for `doctor`, over made-up file systems."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from energy_probe.probe import chip, open_folder, pmu, write, zone
from qjoule.machine import fexit, kernel
from qjoule.machine.check import Check
from qjoule.machine.counters import hardware_counters, try_event
from qjoule.machine.sources import host_tree, hwmon_meters, perf_pmu, powercap_tree
from qjoule.machine.syscall_filter import ask_kernel, syscall_filter

BTF = b"\x9f\xeb\x01\x00"


def write_btf(root: Path, strings: bytes) -> None:
    path = root / "sys/kernel/btf/vmlinux"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(BTF + strings)


def test_kernel_release(tmp_path: Path) -> None:
    assert kernel.kernel_release(tmp_path).ok is None
    write(tmp_path / "proc/sys/kernel/osrelease", "6.1.0-28-amd64\n")
    assert kernel.kernel_release(tmp_path) == Check("kernel", True, "6.1.0-28-amd64")


@pytest.mark.parametrize(
    ("mode", "error", "ok"),
    [
        (0, errno.EPERM, []),
        (2, errno.EINVAL, [True]),
        (2, errno.EPERM, [False]),
        (2, errno.ENOSYS, [False]),
    ],
)
def test_a_container_s_filter(tmp_path: Path, mode: int, error: int, ok: list[bool]) -> None:
    write(tmp_path / "proc/self/status", f"NoNewPrivs:\t1\nSeccomp:\t{mode}\n")
    found = syscall_filter(tmp_path, lambda: error)
    assert [check.ok for check in found] == ok
    assert all(check.ok or "packaging/oci/seccomp.json" in check.fix for check in found)


def test_the_kernel_answers_whatever_the_rights() -> None:
    assert ask_kernel() == errno.EINVAL


@pytest.mark.parametrize(
    ("bits", "ok"),
    [
        ("000001ffffffffff", True),
        ("0000000000200000", True),  # CAP_SYS_ADMIN
        ("000000c000080000", True),  # CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE
        ("000000c000000000", False),
        ("0000000000000000", False),
    ],
)
def test_privileges(tmp_path: Path, bits: str, ok: bool) -> None:
    write(tmp_path / "proc/self/status", f"Name:\tx\nCapEff:\t{bits}\n")
    check = kernel.privileges(tmp_path)
    assert check.ok is ok
    assert bool(check.fix) is not ok


def test_what_is_unknown_says_why_and_not_that_it_is(tmp_path: Path) -> None:
    """On a system that lacks everything: `doctor` writes the word "unknown" before each of them."""
    checks = [check for check in kernel.check_machine(tmp_path) if check.ok is None]
    assert {"kernel", "privileges", "lockdown"} <= {check.name for check in checks}
    for check in checks:
        assert check.detail
        assert "unknown" not in check.detail


def test_btf(tmp_path: Path) -> None:
    missing = kernel.btf(tmp_path)
    assert missing.ok is False
    assert "CONFIG_DEBUG_INFO_BTF" in missing.fix
    assert "out of qjoule's scope" in missing.fix
    write_btf(tmp_path, b"")
    assert kernel.btf(tmp_path).ok is True
    write(tmp_path / "sys/kernel/btf/vmlinux", "ELF")
    assert kernel.btf(tmp_path).ok is False


def test_tracepoints(tmp_path: Path) -> None:
    assert {c.ok for c in kernel.tracepoints(tmp_path)} == {None}
    write_btf(tmp_path, b"\0btf_trace_sched_switch\0btf_trace_sock_recv_lengthy\0")
    checks = {c.name: c for c in kernel.tracepoints(tmp_path)}
    assert checks["tracepoint sched_switch"].ok is True
    assert checks["tracepoint sock_recv_length"].ok is False
    assert "6.3" in checks["tracepoint sock_recv_length"].fix


def test_reads_are_seen_by_functions_where_there_are_no_tracepoints(tmp_path: Path) -> None:
    """Linux 6.1, and what it may lack."""

    def reads() -> Check:
        checks = {check.name: check for check in kernel.tracepoints(tmp_path)}
        return checks["tracepoint sock_recv_length"]

    later = ("BPF_FUNC_loop", "BPF_FUNC_dynptr_data")
    known = [*fexit.FUNCTIONS, *later]
    for name in known:
        write_btf(tmp_path, "\0".join(["", *known, ""]).replace(name, name + "_").encode())
        assert reads().ok is False
        assert ("5.19" if name in later else name) in reads().fix
    write_btf(tmp_path, "\0".join(["", *known, ""]).encode())
    assert reads().ok is False, "preemption is unknown"
    write(tmp_path / "proc/sys/kernel/version", "#1 SMP Debian 6.1")
    assert reads().ok is True
    assert "fexit" in reads().detail
    write(tmp_path / "proc/sys/kernel/ftrace_enabled", "0\n")
    assert reads().fix.endswith("sysctl kernel.ftrace_enabled=1")


@pytest.mark.parametrize(
    ("build", "files", "how"),
    [
        ("", {}, ""),
        ("#1 SMP Debian", {}, "voluntary"),
        ("#1 SMP PREEMPT Arch", {}, "full"),
        ("#1 SMP PREEMPT_RT Debian", {"proc/cmdline": "preempt=voluntary"}, "full"),
        ("#1 SMP PREEMPT_DYNAMIC", {}, ""),
        ("#1 SMP PREEMPT_DYNAMIC", {"proc/cmdline": "quiet preempt=full"}, "full"),
        ("#1 SMP PREEMPT_DYNAMIC", {"boot/config-6.1": "CONFIG_PREEMPT_NONE=y"}, "none"),
        ("#1 SMP PREEMPT_DYNAMIC", {"lib/modules/6.1/config": "CONFIG_PREEMPT=y"}, "full"),
        (
            "#1 SMP PREEMPT_DYNAMIC",
            {"boot/config-6.1": "CONFIG_PREEMPT_VOLUNTARY=y", "proc/cmdline": "preempt=full"},
            "full",
        ),
        (
            "#1 SMP PREEMPT_DYNAMIC",
            {
                "sys/kernel/debug/sched/preempt": "none (voluntary) full",
                "proc/cmdline": "preempt=full",
            },
            "voluntary",
        ),
    ],
)
def test_preemption(tmp_path: Path, build: str, files: dict[str, str], how: str) -> None:
    write(tmp_path / "proc/sys/kernel/osrelease", "6.1")
    write(tmp_path / "proc/sys/kernel/version", build)
    for name, text in files.items():
        write(tmp_path / name, text + "\n")
    assert fexit.preemption(tmp_path) == how


def test_uprobes(tmp_path: Path) -> None:
    assert kernel.uprobes(tmp_path).ok is False
    write(tmp_path / "sys/bus/event_source/devices/uprobe/type", "7\n")
    assert kernel.uprobes(tmp_path).ok is True
    # The rights of the process that will attach them, as far as they can be told.
    assert kernel.uprobes(tmp_path, 12).ok is True
    write(tmp_path / "proc/12/status", "CapEff:\t000000c000080000\n")
    assert not kernel.uprobes(tmp_path, 12).ok
    assert "CAP_SYS_ADMIN" in kernel.uprobes(tmp_path, 12).fix
    write(tmp_path / "proc/12/status", "CapEff:\t000001ffffffffff\n")
    assert kernel.uprobes(tmp_path, 12).ok is True


@pytest.mark.parametrize(
    ("text", "ok", "detail"),
    [
        ("[none] integrity confidentiality", True, "none"),
        (
            "none [integrity] confidentiality",
            True,
            "integrity: nothing that qjoule uses is refused",
        ),
        (
            "none integrity [confidentiality]",
            False,
            "confidentiality: BPF may not read kernel memory, so nothing can be traced",
        ),
    ],
)
def test_lockdown(tmp_path: Path, text: str, ok: bool, detail: str) -> None:
    assert kernel.lockdown(tmp_path).ok is None
    write(tmp_path / "sys/kernel/security/lockdown", text + "\n")
    check = kernel.lockdown(tmp_path)
    assert (check.ok, check.detail) == (ok, detail)
    assert ("lockdown=integrity" in check.fix) is not ok


@pytest.mark.parametrize(
    ("level", "bits", "ok"),
    [
        ("-1", "0", True),
        ("2", "0", True),
        ("3", "0", False),
        ("4", "0", False),
        ("4", "0000000000200000", True),  # CAP_SYS_ADMIN
        ("", "0", None),
        ("x", "0", None),
    ],
)
def test_perf_event_paranoid(tmp_path: Path, level: str, bits: str, ok: bool | None) -> None:
    write(tmp_path / "proc/self/status", f"CapEff:\t{bits}\n")
    write(tmp_path / "proc/sys/kernel/perf_event_paranoid", level)
    check = kernel.perf_event_paranoid(tmp_path)
    assert check.ok is ok
    assert ("sysctl kernel.perf_event_paranoid=2" in check.fix) is (ok is False)


def test_without_tracefs_only_kernels_without_the_uprobe_pmu_lack_something(tmp_path: Path) -> None:
    missing = kernel.tracefs(tmp_path)
    assert missing.ok is False
    assert missing.fix == "mount -t tracefs none /sys/kernel/tracing"
    write(tmp_path / "sys/bus/event_source/devices/uprobe/type", "7\n")
    assert kernel.tracefs(tmp_path) == Check("tracefs", True, "not mounted, and not needed")
    write(tmp_path / "sys/kernel/debug/tracing/trace", "")
    assert kernel.tracefs(tmp_path).detail == "mounted at /sys/kernel/debug/tracing"


def test_cgroups(tmp_path: Path) -> None:
    assert kernel.cgroups(tmp_path).ok is None
    write(tmp_path / "sys/fs/cgroup/cpu/tasks", "")
    first = kernel.cgroups(tmp_path)
    assert (first.ok, first.detail.partition(",")[0]) == (True, "version 1")
    assert "systemd.unified_cgroup_hierarchy=1" in first.detail
    write(tmp_path / "sys/fs/cgroup/cgroup.controllers", "cpu io memory\n")
    assert kernel.cgroups(tmp_path) == Check("cgroups", True, "version 2")


def test_without_bpf_loop_it_says_what_is_not_traced(tmp_path: Path) -> None:
    assert kernel.bpf_loop(tmp_path).ok is None
    write_btf(tmp_path, b"\0BPF_FUNC_loopy\0")
    absent = kernel.bpf_loop(tmp_path)
    assert absent.ok is False
    assert "MongoDB" in absent.detail
    assert "5.17" in absent.fix
    write(tmp_path / "sys/kernel/btf/vmlinux", "\0BPF_FUNC_loop\0")
    assert kernel.bpf_loop(tmp_path).ok is True


@pytest.mark.parametrize(
    ("helpers", "disabled", "early"),
    [
        ("", "2", True),
        ("BPF_FUNC_loop", "2", True),  # Linux 5.17 and 5.18
        ("BPF_FUNC_loop", "0", False),
        ("BPF_FUNC_dynptr_data", "0", True),
        ("BPF_FUNC_loop\0BPF_FUNC_dynptr_data", "2", False),
    ],
)
def test_which_programs_the_tracer_loads(
    tmp_path: Path, helpers: str, disabled: str, early: bool
) -> None:
    write(tmp_path / "sys/kernel/btf/vmlinux", f"\0{helpers}\0")
    write(tmp_path / "proc/sys/kernel/unprivileged_bpf_disabled", f"{disabled}\n")
    assert kernel.early(tmp_path) is early


@pytest.mark.parametrize(("text", "ok"), [("0", False), ("1", True), ("2", True), ("", None)])
def test_bpf_jit(tmp_path: Path, text: str, ok: bool | None) -> None:
    write(tmp_path / "proc/sys/net/core/bpf_jit_enable", text)
    assert kernel.bpf_jit(tmp_path).ok is ok


@pytest.mark.parametrize(
    ("text", "ok", "detail"),
    [
        ("0", True, "allowed"),
        ("2", True, "disabled"),
        ("7", None, "unprivileged_bpf_disabled is 7"),
        ("", None, "no kernel.unprivileged_bpf_disabled"),
    ],
)
def test_unprivileged_bpf(tmp_path: Path, text: str, ok: bool | None, detail: str) -> None:
    write(tmp_path / "proc/sys/kernel/unprivileged_bpf_disabled", text)
    check = kernel.unprivileged_bpf(tmp_path)
    assert (check.ok, check.detail) == (ok, detail)


@pytest.mark.parametrize(
    ("error", "ok", "word"),
    [
        (0, True, "available"),
        (errno.ENOENT, False, "by CPU time"),
        (errno.EACCES, None, "not permitted"),
        (errno.EPERM, None, "not permitted"),
    ],
)
def test_hardware_counters(error: int, ok: bool | None, word: str) -> None:
    asked: list[tuple[int, int]] = []

    def probe(event_type: int, config: int) -> int:
        asked.append((event_type, config))
        return error

    checks = hardware_counters(probe)
    assert asked == [(0, 0), (0, 1), (0, 3)]
    assert [c.name for c in checks] == [
        "counter cycles",
        "counter instructions",
        "counter llc_misses",
    ]
    assert {c.ok for c in checks} == {ok}
    assert all(word in c.detail for c in checks)


@pytest.mark.skipif(os.geteuid() != 0, reason="system-wide perf events need root")
def test_asking_the_kernel() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert try_event(1, 0) == 0  # the software CPU clock is always there
    assert try_event(1, 0xFFFF) != 0
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_powercap_tree(tmp_path: Path) -> None:
    root = tmp_path / "sys/class/powercap"
    assert powercap_tree(tmp_path).ok is False
    zone(root, "intel-rapl-mmio:0", "package-0", 1, 1)
    assert powercap_tree(tmp_path).ok is False
    zone(root, "intel-rapl:0", "package-0", 1, 1)
    zone(root, "intel-rapl:0:0", "core", 1, 1)
    zone(root, "intel-rapl:1", "psys", 1, 1)
    assert powercap_tree(tmp_path) == Check("powercap", True, "package-0, psys")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give root up")
def test_powercap_tree_that_may_not_be_read() -> None:
    with open_folder() as folder:
        zone(folder, "intel-rapl:0", "package-0", 1, 1).chmod(0o400)
        os.seteuid(65534)
        try:
            check = host_tree(folder)
        finally:
            os.seteuid(0)
    assert check == Check("host energy", False, "package-0: not readable", "run it with sudo")


def test_host_tree_without_names(tmp_path: Path) -> None:
    assert "hypervisor" in host_tree(tmp_path).fix
    zone(tmp_path, "intel-rapl:0", None, 1, None)
    assert host_tree(tmp_path) == Check("host energy", True, "intel-rapl:0")


def test_perf_pmu(tmp_path: Path) -> None:
    folder = tmp_path / "sys/bus/event_source/devices/power"
    assert perf_pmu(tmp_path).ok is False
    pmu(folder, "0", {"energy-psys": "event=0x05"})
    assert perf_pmu(tmp_path).detail == "energy-psys, none of a package"
    assert perf_pmu(tmp_path).ok is False
    pmu(folder, "0", {"energy-pkg": "event=0x02"})
    assert perf_pmu(tmp_path) == Check("perf energy", True, "energy-pkg, energy-psys")


def test_every_check_of_an_empty_machine_has_a_line(tmp_path: Path) -> None:
    checks = kernel.check_machine(tmp_path, tmp_path)
    assert len({c.name for c in checks}) == len(checks)
    assert all(c.detail and "\n" not in c.detail + c.fix for c in checks)
    assert all(c.fix for c in checks if c.ok is False)


def test_every_check_of_this_machine() -> None:
    checks = {c.name: c for c in kernel.check_machine()}
    assert checks["kernel"].detail == os.uname().release
    assert checks["privileges"].ok is (os.geteuid() == 0)


def test_meters_of_hwmon_have_a_line_only_where_there_are_some(tmp_path: Path) -> None:
    root = tmp_path / "sys/class/hwmon"
    chip(root, 0, "coretemp", temp1_input=41000)
    chip(root, 1, "BAT0", power1_average=9_000_000)
    assert hwmon_meters(tmp_path) is None
    chip(root, 2, "power_meter", power1_average=250_000_000)
    chip(root, 3, "amd_energy", energy1_input=1)
    assert hwmon_meters(tmp_path) == Check("hwmon", True, "amd_energy, power_meter")


def test_tracefs_that_is_root_s_alone_is_mounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its directory has mode 0700 by default, and doctor has no rights."""

    def refuses(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", refuses)
    (tmp_path / "sys/kernel/tracing").mkdir(parents=True)
    assert kernel.tracefs(tmp_path).detail == "mounted at /sys/kernel/tracing"
    (tmp_path / "sys/kernel/tracing").rmdir()
    assert kernel.tracefs(tmp_path).ok is False
