# SPDX-License-Identifier: Apache-2.0
"""Asks the kernel by perf_event_open(2) which hardware counters this machine has, and whether a
container's filter of system calls (seccomp) lets qjoule ask at all.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import re
from collections.abc import Callable
from pathlib import Path

from qjoule.contract import COUNTER_NAMES
from qjoule.machine.facts import Check, read_text

#: perf_event_open(2); PERF_TYPE_HARDWARE and the configs of include/uapi/linux/perf_event.h
SYSCALLS = {"x86_64": 298, "aarch64": 241}
TYPE_HARDWARE = 0
CONFIGS = {"cycles": 0, "instructions": 1, "llc_misses": 3}
FLAG_FD_CLOEXEC = 8


class _PerfEventAttr(ctypes.Structure):
    """PERF_ATTR_SIZE_VER0: every kernel takes it."""

    _fields_ = (
        ("type", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("config", ctypes.c_uint64),
        ("sample_period", ctypes.c_uint64),
        ("sample_type", ctypes.c_uint64),
        ("read_format", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("wakeup_events", ctypes.c_uint32),
        ("bp_type", ctypes.c_uint32),
        ("bp_addr", ctypes.c_uint64),
    )


def try_event(event_type: int, config: int) -> int:
    """Opens and closes a system-wide event on CPU 0. Returns 0, or the errno of the refusal."""
    number = SYSCALLS.get(platform.machine())
    if number is None:
        return errno.ENOSYS
    attr = _PerfEventAttr(type=event_type, size=ctypes.sizeof(_PerfEventAttr), config=config)
    libc = ctypes.CDLL(None, use_errno=True)
    any_pid, cpu, no_group = ctypes.c_int(-1), ctypes.c_int(0), ctypes.c_int(-1)
    descriptor = libc.syscall(
        ctypes.c_long(number),
        ctypes.byref(attr),
        any_pid,
        cpu,
        no_group,
        ctypes.c_ulong(FLAG_FD_CLOEXEC),
    )
    if descriptor < 0:
        return ctypes.get_errno()
    os.close(descriptor)
    return 0


def hardware_counters(probe: Callable[[int, int], int] = try_event) -> tuple[Check, ...]:
    """One check per counter of the event contract; `probe` returns 0 or an errno."""
    return tuple(_check(name, probe(TYPE_HARDWARE, CONFIGS[name])) for name in COUNTER_NAMES)


def why_missing(error: int) -> str:
    """In words, why an event could not be opened."""
    absent = error in (errno.ENOENT, errno.EOPNOTSUPP, errno.EINVAL)
    return "absent" if absent else os.strerror(error)


def _check(name: str, error: int) -> Check:
    if not error:
        return Check(f"counter {name}", True, "available")
    if error in (errno.EACCES, errno.EPERM):
        return Check(f"counter {name}", None, "not permitted", "run it with sudo")
    detail = f"{why_missing(error)}; energy is apportioned by CPU time"
    fix = "in a virtual machine, have the hypervisor expose a PMU; else nothing can be done"
    return Check(f"counter {name}", False, detail, fix)


ROOT = Path("/")
_NAME = "seccomp"
#: perf_event_open(2) has no such flags, and says so before it looks at rights (events/core.c).
_NO_FLAGS = ctypes.c_ulong(~0)
_FIX = (
    "a runtime's default filter may want CAP_SYS_ADMIN for bpf and perf_event_open; use "
    "packaging/oci/seccomp.json instead (podman run --security-opt seccomp=FILE)"
)


def ask_kernel() -> int:
    """Calls perf_event_open(2) with flags that it has not. Returns its errno: EINVAL by the kernel,
    whatever the rights; another one by a filter."""
    number = SYSCALLS.get(platform.machine())
    if number is None:
        return errno.EINVAL
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall(ctypes.c_long(number), None, 0, 0, 0, _NO_FLAGS)
    return ctypes.get_errno()


def syscall_filter(root: Path = ROOT, ask: Callable[[], int] = ask_kernel) -> tuple[Check, ...]:
    """One check if this process, and so all of its container, has a filter; else none."""
    status = read_text(root / "proc/self/status")
    if not re.search(r"^Seccomp:\s*2$", status, re.MULTILINE):
        return ()
    if ask() == errno.EINVAL:
        return (Check(_NAME, True, "the container's filter allows perf_event_open"),)
    return (Check(_NAME, False, "the container's filter refuses perf_event_open", _FIX),)
