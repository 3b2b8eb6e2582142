# SPDX-License-Identifier: Apache-2.0
"""A slice belongs to the thread that ran, wherever a tick interrupts the program that ends it."""

from __future__ import annotations

import ctypes
from functools import cache

import pytest

from host_library import TRAPPED, compiled
from qjoule.contract import Mode

FLAGS = (*TRAPPED, "-Wno-unused-parameter", "-Itests/support/fuzz/host")
T0_NS, NOW_NS, TICK_NS = 1_000, 5_000, 5_300
#: Mode, counters and further counters, and when the current window began.
KINDS = {
    "recorded": (Mode.RECORD, 0, 0, 0),
    "with counters": (Mode.RECORD, 7, 0, 0),
    "with further counters": (Mode.RECORD, 1, 3, 0),
    "live": (Mode.LIVE, 0, 0, 0),
    "live, with counters": (Mode.LIVE, 7, 0, 0),
    "live, over the end of a window": (Mode.LIVE, 0, 0, 3_000),
}


@cache
def library() -> ctypes.CDLL:
    source = "tests/support/tracer_parts/slice_host.c"
    loaded = compiled(source, compiler="clang", flags=FLAGS)
    loaded.slice_ended.argtypes = [*[ctypes.c_uint32] * 3, *[ctypes.c_uint64] * 5, ctypes.c_void_p]
    loaded.slice_ended.restype = ctypes.c_uint64
    return loaded


def ended(kind: str, interrupted_call: int) -> tuple[int, list[int]]:
    """Calls of helpers, and ns by label: 1 is the owner, 2 whom the tick finds, 0 is mixed."""
    mode, counters, more, window_ns = KINDS[kind]
    ns = (ctypes.c_uint64 * 3)()
    times = (T0_NS, NOW_NS, TICK_NS, window_ns)
    calls = library().slice_ended(mode, counters, more, *times, interrupted_call, ns)
    return calls, list(ns)


@pytest.mark.parametrize("kind", KINDS)
def test_a_tick_in_the_midst_of_a_slices_end_takes_nothing_from_its_owner(kind: str) -> None:
    calls, alone = ended(kind, 0)
    assert calls >= 3, "helpers are called"
    assert alone == [0, NOW_NS - T0_NS, 0]
    for call in range(1, calls + 1):
        assert ended(kind, call)[1] == [0, TICK_NS - T0_NS, 0], f"in call {call}"
