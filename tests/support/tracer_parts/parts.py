# SPDX-License-Identifier: Apache-2.0
"""Parts of the programs and the tracer compiled for the host: counters, busy clocks, topology, and
stolen time.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from host_library import TRAPPED, compiled
from qjoule.contract import CPU

MAX_CPUS = 1024
_U64 = ctypes.c_uint64
_SKELETON = "-Itests/support/tracer_parts/host"


@cache
def _library() -> ctypes.CDLL:
    flags = ("-std=gnu11", "-D_GNU_SOURCE", "-Itracer", _SKELETON, *TRAPPED)
    sources = ("tests/support/tracer_parts/parts.c", "tracer/topology.c", "tracer/steal.c")
    loaded = compiled(*sources, compiler="gcc", flags=flags)
    loaded.counted.restype = ctypes.c_uint
    loaded.steal_new.restype = ctypes.c_void_p
    for name in ("busy_at", "busy_set", "steal_ns"):
        getattr(loaded, name).restype = _U64
    loaded.busy_between.restype = ctypes.c_int64
    loaded.steal_ns.argtypes = [ctypes.c_void_p, ctypes.c_uint]
    for name in ("steal_read", "steal_free"):
        getattr(loaded, name).argtypes = [ctypes.c_void_p]
    loaded.busy_at.argtypes = [_U64, _U64]
    loaded.busy_set.argtypes = [_U64, ctypes.c_int, _U64]
    loaded.busy_between.argtypes = [_U64, _U64]
    return loaded


def counted(before: tuple[int, int, int], now: tuple[int, int, int]) -> tuple[int, int]:
    """(share in 1/65535, increment) between readings (counter, enabled_ns, running_ns)."""
    increment = _U64()
    share = _library().counted((_U64 * 3)(*before), (_U64 * 3)(*now), ctypes.byref(increment))
    return int(share), increment.value


def busy_at(clock: int, t_ns: int) -> int:
    return int(_library().busy_at(clock, t_ns))


def busy_set(clock: int, busy: bool, now_ns: int) -> int:
    return int(_library().busy_set(clock, busy, now_ns))


def busy_between(before_ns: int, now_ns: int) -> int:
    return int(_library().busy_between(before_ns, now_ns))


def stolen_ns(path: Path, texts: Sequence[bytes], cpus: Sequence[int]) -> list[int]:
    """Stolen time of some CPUs after /proc/stat, at `path`, was read with each of the texts."""
    path.write_bytes(b"")
    library = _library()
    steal = library.steal_new(os.open(path, os.O_RDONLY))
    for text in texts:
        path.write_bytes(text)
        library.steal_read(steal)
    stolen = [int(library.steal_ns(steal, cpu)) for cpu in cpus]
    library.steal_free(steal)
    return stolen


def topology(directory: Path) -> list[tuple[int, int, int, int]]:
    """(cpu, package, core, sibling) of each CPU online. Raises `OSError`."""
    cpus = np.zeros(MAX_CPUS, CPU)
    count = _library().topology_read(os.fsencode(directory), ctypes.c_void_p(cpus.ctypes.data))
    if count < 0:
        raise OSError(-count, os.strerror(-count))
    return [tuple(cpu) for cpu in cpus[:count].tolist()]


def firsts(cpus: list[tuple[int, int, int, int]]) -> tuple[list[int], list[int]]:
    """(lowest CPU of the same core, lowest CPU of the same package) for every CPU."""
    records = np.array(cpus, CPU)
    table = np.zeros((2, MAX_CPUS), np.uint16)
    _library().topology_firsts(
        ctypes.c_void_p(records.ctypes.data),
        len(cpus),
        *(ctypes.c_void_p(row.ctypes.data) for row in table),
    )
    return table[0].tolist(), table[1].tolist()


def rings(cpus: list[tuple[int, int, int, int]]) -> tuple[int, list[int]]:
    """(CPUs of the largest core, next CPU of the same core for every CPU)."""
    records = np.array(cpus, CPU)
    following = np.zeros(MAX_CPUS, np.uint16)
    most = _library().topology_rings(
        ctypes.c_void_p(records.ctypes.data), len(cpus), ctypes.c_void_p(following.ctypes.data)
    )
    return int(most), following.tolist()


def write_topology(directory: Path, cores: list[tuple[int, list[int]]]) -> Path:
    """A tree like /sys/devices/system/cpu; `cores`: package and CPUs of each core."""
    online = sorted(cpu for _, cpus in cores for cpu in cpus)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "online").write_text(",".join(map(str, online)) + "\n")
    for package, cpus in cores:
        for cpu in cpus:
            topology = directory / f"cpu{cpu}" / "topology"
            topology.mkdir(parents=True)
            (topology / "physical_package_id").write_text(f"{package}\n")
            (topology / "thread_siblings_list").write_text(",".join(map(str, cpus)) + "\n")
    return directory
