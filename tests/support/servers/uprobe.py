# SPDX-License-Identifier: Apache-2.0
"""One uprobe through perf_event_open(2) that counts its hits: does the kernel accept this site?"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_PMU = Path("/sys/bus/event_source/devices/uprobe")
_SYS_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def open_uprobe(path: Path, offset: int, on_return: bool) -> Iterator[Callable[[], int]]:
    """A probe in every process of this file; yields a function that returns its count.

    Raises:
        OSError: the kernel refuses.
    """
    kind = int((_PMU / "type").read_text())
    return_bit = int((_PMU / "format" / "retprobe").read_text().removeprefix("config:"))
    name = ctypes.create_string_buffer(os.fsencode(path))
    attributes = struct.pack(
        "=IIQQQQQIIQQ",
        kind,
        72,  # PERF_ATTR_SIZE_VER1: up to config2
        on_return << return_bit,
        0,  # sample_period
        0,  # sample_type
        0,  # read_format
        0,  # flags
        0,  # wakeup_events
        0,  # bp_type
        ctypes.addressof(name),  # config1: uprobe_path
        offset,  # config2: probe_offset
    )
    descriptors = [_open(attributes, cpu) for cpu in sorted(os.sched_getaffinity(0))]
    try:
        yield lambda: sum(struct.unpack("=Q", os.read(d, 8))[0] for d in descriptors)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _open(attributes: bytes, cpu: int) -> int:
    number = _SYS_PERF_EVENT_OPEN[platform.machine()]
    any_process, no_group = ctypes.c_int(-1), ctypes.c_int(-1)
    descriptor: int = _libc.syscall(
        number, attributes, any_process, ctypes.c_int(cpu), no_group, ctypes.c_ulong(8)
    )
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), f"the kernel refuses a uprobe: {attributes.hex()}")
    return descriptor
