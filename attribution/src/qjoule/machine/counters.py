# SPDX-License-Identifier: Apache-2.0
"""Finds the hardware counters of this machine by asking the kernel."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from collections.abc import Callable

from qjoule.contract import COUNTER_NAMES
from qjoule.machine.check import Check

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
