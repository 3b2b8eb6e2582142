# SPDX-License-Identifier: Apache-2.0
"""Where the loads run on a machine, and how much memory the loads need."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from qjoule.api import QjouleError
from qjoule.api.servers import CpuInfo

#: Grades of a counter that is measured, or simulated by a test. Anything else is a model, and a
#: model of time and load cannot validate another one.
TESTABLE_GRADES = ("measured", "simulated")
NOTHING_TO_MEASURE = "cannot test: this needs an energy counter that measures (RAPL)"
_LEAST_CORES = 2
_LEAST_TABLE_BYTES = 64 << 20
_MOST_TABLE_BYTES = 1 << 30
_CACHES = "sys/devices/system/cpu/cpu0/cache"


def table_bytes(root: Path = Path("/")) -> tuple[int, int | None]:
    """Bytes for B's table, and of the last-level cache: twice the cache, within a quarter of
    memory."""
    cache = last_cache_bytes(root)
    wanted = max(2 * (cache or 0), _LEAST_TABLE_BYTES)
    return min(wanted, _MOST_TABLE_BYTES, max(_available_bytes(root) // 4, 1 << 20)), cache


def last_cache_bytes(root: Path = Path("/")) -> int | None:
    """Size of the largest cache of CPU 0; None if the kernel does not show it."""
    sizes = []
    for file in root.glob(f"{_CACHES}/index*/size"):
        text = file.read_text().strip()
        unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
        if text.rstrip("KM").isdigit():
            sizes.append(int(text.rstrip("KM")) * unit)
    return max(sizes, default=None)


def one_package(info: CpuInfo) -> set[int]:
    """One CPU of each core of the package with most cores: where the loads may run.

    On two packages the joint run would wake both of them, but a solo run only one. On one core,
    both loads would share its clock. Raises `QjouleError` if there are no two such cores.
    """
    cores: dict[int, set[int]] = {}
    for cpu in info.cpus:
        cores.setdefault(cpu.package, set()).add(min(cpu.siblings))
    most = max(cores.values(), key=len, default=set())
    if len(most) < _LEAST_CORES:
        raise QjouleError("cannot test: the two loads need two cores of one package")
    return most


def pin(pid: int, cpus: set[int]) -> None:
    """Pins a server's main thread; the threads and processes that serve connections inherit it."""
    try:
        os.sched_setaffinity(pid, cpus)
    except OSError as error:
        raise QjouleError(f"the server may not run on one package: {error.strerror}") from error


def _available_bytes(root: Path) -> int:
    for line in _lines(root / "proc/meminfo"):
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) << 10
    return _LEAST_TABLE_BYTES


def _lines(path: Path) -> Iterator[str]:
    try:
        yield from path.read_text().splitlines()
    except OSError:
        return
