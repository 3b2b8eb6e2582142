# SPDX-License-Identifier: Apache-2.0
"""The BPF programs' idle tails and the tracer's half of them, compiled for the host."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np

from host_library import compiled
from qjoule.contract import AGGREGATE, CPU, PACKAGE_TIME

_U64 = ctypes.c_uint64


@cache
def _library() -> ctypes.CDLL:
    include = ("-Itests/support/fuzz/host", "-Itests/support/tracer_parts/host", "-Itracer")
    flags = ("-std=gnu11", "-D_GNU_SOURCE", "-O1", "-Wno-unused-parameter", *include)
    sources = ("tests/support/tracer_parts/tails_host.c", "tracer/idle_times.c")
    loaded = compiled(*sources, compiler="clang", flags=flags)
    loaded.tails_switch.argtypes = [ctypes.c_uint, ctypes.c_uint, _U64]
    loaded.tails_edge.argtypes = [_U64]
    loaded.tails_drain.argtypes = [_U64, _U64]
    loaded.tails_found.restype = ctypes.c_size_t
    return loaded


class Tails:
    """One machine. Times are ns, at least 1, and must not decrease."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def switch(self, cpu: int, tgid: int, now_ns: int) -> tuple[bool, bool]:
        """The CPU now runs a process; 0: nothing. Whether that woke its core, and its package."""
        woke = self._library.tails_switch(cpu, tgid, now_ns)
        return bool(woke & 1), bool(woke & 2)

    def edge(self, t_ns: int) -> None:
        """A window ends and the next one begins."""
        self._library.tails_edge(t_ns)

    def drain(self, t0_ns: int, t1_ns: int) -> None:
        """The tracer takes the window that has ended."""
        self._library.tails_drain(t0_ns, t1_ns)

    def found(self) -> tuple[np.ndarray, np.ndarray]:
        """AGGREGATE and PACKAGE_TIME records of all windows so far."""
        sums, times, count = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
        arguments = (ctypes.byref(one) for one in (sums, times, count))
        found = self._library.tails_found(*arguments)
        return (
            np.frombuffer(ctypes.string_at(sums, found * AGGREGATE.itemsize), AGGREGATE),
            np.frombuffer(
                ctypes.string_at(times, count.value * PACKAGE_TIME.itemsize), PACKAGE_TIME
            ),
        )


@contextmanager
def tails(cpus: list[tuple[int, int, int, int]]) -> Iterator[Tails]:
    """`cpus`: (cpu, package, core, sibling) as in the contract. There is one machine at a time."""
    records = np.array(cpus, CPU)
    threads = int(np.bincount(records["sibling"]).max())
    library = _library()
    library.tails_start(ctypes.c_void_p(records.ctypes.data), len(cpus), threads)
    try:
        yield Tails(library)
    finally:
        library.tails_stop()
