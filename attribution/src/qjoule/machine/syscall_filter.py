# SPDX-License-Identifier: Apache-2.0
"""Whether a container's filter of system calls (seccomp) lets qjoule trace."""

from __future__ import annotations

import ctypes
import errno
import platform
import re
from collections.abc import Callable
from pathlib import Path

from qjoule.machine.check import Check
from qjoule.machine.counters import SYSCALLS
from qjoule.machine.files import read_text

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
