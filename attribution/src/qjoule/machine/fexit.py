# SPDX-License-Identifier: Apache-2.0
"""Checks whether BPF programs can attach to the returns of the kernel's socket functions (fexit).

Before Linux 6.3, such programs replace the socket tracepoints (bpf/core/socket.bpf.h).
"""

from __future__ import annotations

from pathlib import Path

from qjoule.machine.facts import read_text

#: Functions that the kernel's BTF must have: the one that attaches fexit programs
#: (DYNAMIC_FTRACE_WITH_DIRECT_CALLS: x86-64 from 5.5 on, arm64 from 6.4), and their targets.
FUNCTIONS = (
    "register_ftrace_direct",
    "inet_recvmsg",
    "inet6_recvmsg",
    "unix_stream_recvmsg",
    "inet_sendmsg",
    "inet6_sendmsg",
    "unix_stream_sendmsg",
)


def missing(root: Path, btf_strings: bytes, *, early: bool) -> str:
    """Returns in one line why the kernel cannot run fexit programs, or "" if it can.

    Args:
        early: the tracer loads its programs for early kernels.
    """
    if early:
        return "before 6.3 it takes 5.19"
    for name in FUNCTIONS:
        if b"\0" + name.encode() + b"\0" not in btf_strings:
            return f"before 6.3 it takes {name}() in the kernel's BTF"
    if read_text(root / "proc/sys/kernel/ftrace_enabled") == "0":
        return "before 6.3 it takes sysctl kernel.ftrace_enabled=1"
    # If a thread is preempted in an fexit program, the kernel skips the program for the next thread
    # on that CPU, without counting it (__bpf_prog_enter(), kernel/bpf/trampoline.c).
    how = preemption(root)
    if how in ("none", "voluntary"):
        return ""
    if not how:
        return "before 6.3 its preemption must be known: boot with preempt=voluntary"
    return "before 6.3 it must not be preempted: boot with preempt=voluntary"


def preemption(root: Path) -> str:
    """How kernel code is preempted: "none", "voluntary", "full", or "" where that is not known."""
    build = read_text(root / "proc/sys/kernel/version").split()
    if not build:
        return ""
    if "PREEMPT" in build or "PREEMPT_RT" in build:
        return "full"
    if "PREEMPT_DYNAMIC" not in build:
        return "voluntary"
    # "none (voluntary) full", for root where debugfs is mounted.
    chosen = read_text(root / "sys/kernel/debug/sched/preempt").partition("(")[2].partition(")")[0]
    for word in read_text(root / "proc/cmdline").split():
        if word.startswith("preempt="):
            chosen = chosen or word.partition("=")[2]
    return chosen or _built_in(root)


def _built_in(root: Path) -> str:
    release = read_text(root / "proc/sys/kernel/osrelease")
    for path in (f"boot/config-{release}", f"lib/modules/{release}/config"):
        lines = set(read_text(root / path).splitlines())
        for name, how in (("_NONE", "none"), ("_VOLUNTARY", "voluntary"), ("", "full")):
            if release and f"CONFIG_PREEMPT{name}=y" in lines:
                return how
    return ""
