# SPDX-License-Identifier: Apache-2.0
"""Facts about kernel and privileges that decide what can be traced.

A feature is detected by its own presence in the system, never by the kernel's version. Every
function takes the root of the file system, so that tests can provide one.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from qjoule.machine import fexit
from qjoule.machine.facts import Check, read_text
from qjoule.machine.idle_states import check_idle_states
from qjoule.machine.perf_events import hardware_counters, syscall_filter, try_event
from qjoule.machine.sources import (
    core_energy,
    dram_energy,
    host_tree,
    hwmon_meters,
    may_read,
    perf_pmu,
    powercap_tree,
)
from qjoule.root_part.protocol import Sensors
from qjoule.servers.choice import KernelFacts

ROOT = Path("/")
BTF_MAGIC = b"\x9f\xeb"  # little-endian 0xeb9f, Documentation/bpf/btf.rst

#: include/uapi/linux/capability.h
CAPABILITIES = {"CAP_SYS_PTRACE": 19, "CAP_SYS_ADMIN": 21, "CAP_PERFMON": 38, "CAP_BPF": 39}

#: Tracepoints with BTF that the probes attach to, and what is lost without them.
TRACEPOINTS = {
    "sched_switch": "CPU time cannot be traced; use a kernel with CONFIG_DEBUG_INFO_BTF",
    "sched_process_exit": "CPU time cannot be traced; use a kernel with CONFIG_DEBUG_INFO_BTF",
    "sock_recv_length": "kernel 6.3 or later has it; queries are found by symbols (uprobes)",
    "sock_send_length": "kernel 6.3 or later has it; Redis is not traced without it",
}

#: From this value of kernel.perf_event_paranoid on, only privileged processes may open events (3
#: and 4 are patches of Debian and Ubuntu; Documentation/admin-guide/sysctl/kernel.rst).
PARANOID_CLOSED = 3


def check_machine(
    root: Path = ROOT,
    host_root: Path | None = None,
    sensors: Sensors | None = None,
    privileged: int | None = None,
) -> tuple[Check, ...]:
    """Every check, in the order in which `doctor` shows them.

    Args:
        host_root: directory where a hypervisor provides counters.
        sensors: opens counters and energy files for us; None: try with our own rights.
        privileged: the process that will hold the privileges; None: this one.
    """
    try_one = try_event if sensors is None else sensors.try_event
    readable = may_read if sensors is None else sensors.may_read
    return (
        kernel_release(root),
        privileges(root, privileged),
        *syscall_filter(root),
        btf(root),
        *tracepoints(root),
        bpf_loop(root),
        uprobes(root, privileged),
        tracefs(root),
        lockdown(root),
        perf_event_paranoid(root, privileged),
        cgroups(root),
        bpf_jit(root),
        unprivileged_bpf(root),
        *hardware_counters(try_one),
        powercap_tree(root, readable),
        perf_pmu(root),
        *([cores] if (cores := core_energy(root)) else []),
        *([dram] if (dram := dram_energy(root)) else []),
        *([meters] if (meters := hwmon_meters(root)) else []),
        check_idle_states(root),
        *([host_tree(host_root, readable)] if host_root else []),
    )


def kernel_release(root: Path = ROOT) -> Check:
    release = read_text(root / "proc/sys/kernel/osrelease")
    return Check("kernel", True if release else None, release or "is /proc mounted?")


def privileges(root: Path = ROOT, process: int | None = None) -> Check:
    """CAP_SYS_ADMIN is sufficient, or CAP_BPF with CAP_PERFMON and CAP_SYS_PTRACE.

    `process`: the process to check; None: this one.
    """
    capabilities = _capabilities(root, process)
    if capabilities is None:
        return Check("privileges", None, "is /proc mounted?")
    enough = "CAP_SYS_ADMIN" in capabilities or capabilities >= {
        "CAP_BPF",
        "CAP_PERFMON",
        "CAP_SYS_PTRACE",
    }
    detail = ", ".join(sorted(capabilities)) or "no capability that tracing needs"
    return Check("privileges", enough, detail, "" if enough else "run it with sudo")


def _capabilities(root: Path, process: int | None) -> set[str] | None:
    """The `CAPABILITIES` that a process has; None if /proc does not show them."""
    text = read_text(root / f"proc/{process or 'self'}/status")
    match = re.search(r"^CapEff:\s*([0-9a-f]{1,16})$", text, re.MULTILINE)
    if match is None:
        return None
    bits = int(match[1], 16)
    return {name for name, bit in CAPABILITIES.items() if bits >> bit & 1}


def btf(root: Path = ROOT) -> Check:
    path = root / "sys/kernel/btf/vmlinux"
    try:
        with path.open("rb") as file:
            is_btf = file.read(2) == BTF_MAGIC
    except FileNotFoundError:
        fix = (
            "use a kernel built with CONFIG_DEBUG_INFO_BTF=y, as distributions' kernels are; "
            "kernels without BTF are out of qjoule's scope"
        )
        return Check("btf", False, f"no {path}", fix)
    except OSError as error:
        return Check("btf", None, f"{path}: {error.strerror}")
    return Check("btf", is_btf, str(path) if is_btf else f"{path} is not BTF")


def tracepoints(root: Path = ROOT) -> tuple[Check, ...]:
    """Looks for the types ``btf_trace_NAME`` in the strings of the kernel's BTF."""
    strings = btf_strings(root)
    if strings is None:
        return tuple(
            Check(f"tracepoint {name}", None, "cannot be told without BTF") for name in TRACEPOINTS
        )
    return tuple(tracepoint(root, name, strings) for name in TRACEPOINTS)


def tracepoint(root: Path, name: str, strings: bytes) -> Check:
    title, fix = f"tracepoint {name}", TRACEPOINTS[name]
    if b"\0btf_trace_" + name.encode() + b"\0" in strings:
        return Check(title, True, "present")
    if not name.startswith("sock_"):
        return Check(title, False, "absent", fix)
    if no_fexit := fexit.missing(root, strings, early=early(root, strings)):
        return Check(title, False, "absent", f"{fix}; {no_fexit}")
    return Check(title, True, "absent, and not needed: functions are followed instead (fexit)")


def btf_strings(root: Path) -> bytes | None:
    """The kernel's BTF, some 6 MB: a caller that looks for several names reads it once."""
    try:
        return (root / "sys/kernel/btf/vmlinux").read_bytes()
    except OSError:
        return None


def bpf_loop(root: Path = ROOT) -> Check:
    """Without this helper the tracer loads its programs for early kernels, which trace less."""
    strings = btf_strings(root)
    if strings is None:
        return Check("bpf_loop", None, "cannot be told without BTF")
    if b"\0BPF_FUNC_loop\0" in strings:
        return Check("bpf_loop", True, "present")
    detail = "absent: hardware counters, MongoDB and the tags that clients send are not traced"
    return Check(
        "bpf_loop", False, detail, "kernel 5.17 or later has it; 5.19 has all that is used"
    )


def early(root: Path, strings: bytes) -> bool:
    """True if the tracer loads its programs for early kernels (its `early_kernel()`).

    The tracer also tests whether an unprivileged process may use maps that it was given. A
    privileged process cannot test that, so helpers of the same release (5.19) count here.
    """
    any_process = read_text(root / "proc/sys/kernel/unprivileged_bpf_disabled").strip() == "0"
    maps = any_process or b"\0BPF_FUNC_dynptr_data\0" in strings
    return not (maps and b"\0BPF_FUNC_loop\0" in strings)


def uprobes(root: Path = ROOT, process: int | None = None) -> Check:
    """`process`: the one that will attach uprobes; None: assume that it may.

    Linux 6.6 attaches uprobes by BPF links (commit 89ae89f53d20), for which the capabilities of
    tracing suffice. Before, uprobes are perf events, which need CAP_SYS_ADMIN in kernels since 2025
    (commit ba677dbe77af, which went into all stable series). Older ones are treated alike.
    """
    if not (root / "sys/bus/event_source/devices/uprobe/type").is_file():
        fix = "use a kernel with CONFIG_UPROBE_EVENTS=y; without it only the socket mode works"
        return Check("uprobes", False, "no PMU 'uprobe'", fix)
    if b"\0bpf_uprobe_multi_link\0" in (btf_strings(root) or b""):
        return Check("uprobes", True, "available (uprobe_multi)")
    capabilities = None if process is None else _capabilities(root, process)
    if capabilities is not None and "CAP_SYS_ADMIN" not in capabilities:
        fix = "add CAP_SYS_ADMIN if a server below needs the symbol mode (packaging/oci/README.md)"
        return Check("uprobes", False, "not without CAP_SYS_ADMIN", fix)
    return Check("uprobes", True, "available")


def lockdown(root: Path = ROOT) -> Check:
    """In mode `confidentiality` BPF may not read kernel memory (kernel_lockdown(7))."""
    text = read_text(root / "sys/kernel/security/lockdown")
    if not text:
        fix = "mount -t securityfs none /sys/kernel/security shows it"
        return Check("lockdown", None, "securityfs is not mounted", fix)
    mode = text.partition("[")[2].partition("]")[0] or text
    if mode == "confidentiality":
        detail = "confidentiality: BPF may not read kernel memory, so nothing can be traced"
        return Check("lockdown", False, detail, "boot with lockdown=integrity or lockdown=none")
    if mode == "integrity":
        return Check("lockdown", True, "integrity: nothing that qjoule uses is refused")
    return Check("lockdown", True, mode)


def tracefs(root: Path = ROOT) -> Check:
    """Probes are made by perf_event_open(2), tracepoints by BTF: neither needs tracefs."""
    for path in ("sys/kernel/tracing", "sys/kernel/debug/tracing"):
        try:
            present = (root / path / "trace").exists()
        except PermissionError:  # tracefs or debugfs is mounted for root alone
            present = os.path.isdir(root / path)  # noqa: PTH112 (Path.is_dir raises here, too)
        if present:
            return Check("tracefs", True, f"mounted at /{path}")
    if uprobes(root).ok:
        return Check("tracefs", True, "not mounted, and not needed")
    fix = "mount -t tracefs none /sys/kernel/tracing"
    return Check("tracefs", False, "not mounted, and this kernel makes no probe without it", fix)


def perf_event_paranoid(root: Path = ROOT, process: int | None = None) -> Check:
    """Hardware counters and uprobes are perf events. The privileged may open them at any level."""
    name = "perf_event_paranoid"
    level = read_text(root / f"proc/sys/kernel/{name}")
    if not level.lstrip("-").isdigit():
        return Check(name, None, f"no kernel.{name}")
    if int(level) < PARANOID_CLOSED:
        return Check(name, True, level)
    if privileges(root, process).ok:
        return Check(name, True, f"{level}: only root may open events, which qjoule starts as")
    detail = f"{level}: without privileges neither counters nor probes can be opened"
    return Check(name, False, detail, f"run it with sudo, or sysctl kernel.{name}=2")


def cgroups(root: Path = ROOT) -> Check:
    """Processes are told apart by their executables and threads, on either version."""
    top = root / "sys/fs/cgroup"
    if (top / "cgroup.controllers").exists():
        return Check("cgroups", True, "version 2")
    if not any(top.glob("*/tasks")):
        return Check("cgroups", None, "not mounted at /sys/fs/cgroup")
    change = "systemd.unified_cgroup_hierarchy=1 on the kernel's command line gives version 2"
    return Check("cgroups", True, f"version 1, with which nothing is missing; {change}")


def bpf_jit(root: Path = ROOT) -> Check:
    """Without the JIT, the interpreter makes every hook several times as expensive."""
    text = read_text(root / "proc/sys/net/core/bpf_jit_enable")
    if not text:
        return Check("bpf jit", None, "no net.core.bpf_jit_enable")
    on = text != "0"
    return Check(
        "bpf jit", on, "on" if on else "off", "" if on else "sysctl net.core.bpf_jit_enable=1"
    )


def unprivileged_bpf(root: Path = ROOT) -> Check:
    """A fact about hardening; tracing works either way."""
    text = read_text(root / "proc/sys/kernel/unprivileged_bpf_disabled")
    meaning = {"0": "allowed", "1": "disabled until reboot", "2": "disabled"}
    name = "unprivileged_bpf_disabled"
    detail = meaning.get(text, f"{name} is {text}" if text else f"no kernel.{name}")
    return Check("unprivileged bpf", True if text in meaning else None, detail)


def read_kernel_facts(root: Path = ROOT, process: int | None = None) -> KernelFacts:
    """Asks the kernel whose /sys is under `root`. Unknown features count as absent.

    `process`: the one that will attach probes; without it, no right counts as missing.
    """
    strings = btf_strings(root) or b""
    return KernelFacts(
        reads=tracepoint(root, "sock_recv_length", strings).ok is True,
        sends=tracepoint(root, "sock_send_length", strings).ok is True,
        uprobes=uprobes(root, process).ok is True,
        early=early(root, strings),
    )
