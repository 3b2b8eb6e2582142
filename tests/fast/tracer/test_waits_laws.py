# SPDX-License-Identifier: Apache-2.0
"""Law 11: what a query waited for adds up to the time in which its thread was off its CPU."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from host_library import TRAPPED, compiled
from qjoule.contract import Wait

S = 1_000_000_000
DAY = 86_400 * S
FUTEX = 0x7F00_0000_1000
FLAGS = (*TRAPPED, "-Wno-unused-parameter", "-Itests/support/fuzz/host")


@cache
def library() -> ctypes.CDLL:
    return compiled("tests/support/tracer_parts/waits_host.c", compiler="clang", flags=FLAGS)


@dataclass(frozen=True)
class Waited:
    """`expires_ns`: after its begin; 0: never. `runnable_ns`: of it, as the scheduler has it."""

    ns: int
    kind: Wait = Wait.LOCK
    runnable_ns: int = 0
    expires_ns: int = 0
    futex: int = FUTEX


def sums(waits: list[Waited], *, error: bool = False) -> dict[Wait, int]:
    """In ns by kind, without those that are 0."""
    rows, now = [], S
    for wait in waits:
        deadline = now + wait.expires_ns if wait.expires_ns else 0
        rows.append([now, now + wait.ns, wait.runnable_ns, deadline, wait.futex, wait.kind])
        now += wait.ns + 1000
    table = np.array(rows, np.uint64).reshape(-1, 6)
    out = np.zeros(len(Wait), np.uint64)
    library().waits_of(
        ctypes.c_size_t(len(table)), *(ctypes.c_void_p(table.ctypes.data), int(error)),
        ctypes.c_void_p(out.ctypes.data),
    )  # fmt: skip
    return {kind: int(out[kind]) for kind in Wait if out[kind]}


WAITS = st.builds(
    Waited,
    ns=st.integers(1, 40 * DAY),
    kind=st.sampled_from(Wait),
    runnable_ns=st.integers(0, 50 * DAY),
    futex=st.sampled_from((FUTEX, FUTEX + 4, FUTEX + 0x10000)),
)


@st.composite
def waited(draw: st.DrawFn) -> list[Waited]:
    waits = draw(st.lists(WAITS, max_size=20))
    return [
        replace(wait, expires_ns=draw(st.integers(0, 2 * wait.ns)))
        if wait.kind is Wait.LOCK
        else wait
        for wait in waits
    ]


@given(waited(), st.booleans())
def test_parts_add_up_whatever_the_waits(waits: list[Waited], error: bool) -> None:
    assert sum(sums(waits, error=error).values()) == sum(wait.ns for wait in waits)


@given(waited())
def test_a_kind_has_what_is_left_of_its_waits(waits: list[Waited]) -> None:
    """Locks that expire aside, which may have been sleeps."""
    by_kind = sums(waits)
    for kind in (Wait.IO, Wait.NETWORK, Wait.OTHER):
        own = sum(max(w.ns - w.runnable_ns, 0) for w in waits if w.kind is kind)
        assert by_kind.get(kind, 0) == own


def test_a_wait_that_expires_was_a_sleep() -> None:
    assert sums([Waited(S, expires_ns=S)]) == {Wait.SLEEP: S}
    assert sums([Waited(S, expires_ns=2 * S)]) == {Wait.LOCK: S}


def test_a_wait_in_pieces_for_one_lock_is_no_sleep() -> None:
    """MDL_context::acquire_lock() waits for a second at a time."""
    pieces = [Waited(S, expires_ns=S), Waited(S, expires_ns=S, futex=FUTEX + 4)]
    assert sums([*pieces, Waited(S // 2, expires_ns=S)]) == {Wait.LOCK: 5 * S // 2}
    assert sums(pieces) == {Wait.SLEEP: 2 * S}, "SLEEP() of two seconds, say"


def test_a_lock_that_is_given_up_was_no_sleep() -> None:
    """Lock wait timeout exceeded: the statement fails."""
    assert sums([Waited(S, expires_ns=S)], error=True) == {Wait.LOCK: S}


def test_a_sleep_before_a_lock_stays_one() -> None:
    sleep = Waited(S, expires_ns=S, futex=FUTEX + 0x10000)
    assert sums([sleep, Waited(S // 2)]) == {Wait.SLEEP: S, Wait.LOCK: S // 2}


def test_who_is_woken_late_waits_for_a_cpu() -> None:
    assert sums([Waited(S, runnable_ns=S // 4)]) == {Wait.RUN_QUEUE: S // 4, Wait.LOCK: S * 3 // 4}
    late = Waited(S, runnable_ns=S // 4, expires_ns=S * 3 // 4)
    assert sums([late]) == {Wait.RUN_QUEUE: S // 4, Wait.SLEEP: S * 3 // 4}
