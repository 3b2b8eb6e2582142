# SPDX-License-Identifier: Apache-2.0
"""Joins the stacks of sampled waits with the waits' ends, which arrive in any order: a thread may
wake up on another CPU, whose ring is read earlier.
"""

from __future__ import annotations

import numpy as np

from qjoule.contract import Block, StackFlag, Wait
from qjoule.stream.blocks import TIME_LIMIT_NS, valid_segments
from qjoule.stream.pending import Pending, take_rows
from qjoule.trace.columns import Array


def is_wait(stacks: Array) -> Array:
    """Mask of the `contract.STACK` records that are of a wait's begin."""
    mask: Array = stacks["flags"] & StackFlag.WAIT != 0
    return mask


def valid_waits(waits: Array) -> Array:
    """Mask of the waits that a query's thread began."""
    segments = waits["segment"]
    mask: Array = valid_segments(segments) & (segments["query"] != 0)
    return mask


def valid_ends(ends: Array) -> Array:
    """Mask of the `contract.WAIT_END` records that do not contradict themselves."""
    begin_ns, ns = ends["begin_ns"], ends["ns"]
    within = (begin_ns < TIME_LIMIT_NS) & (ns < TIME_LIMIT_NS) & (ends["run_queue_ns"] <= ns)
    mask: Array = within & (ends["kind"] <= max(Wait))
    return mask


def take_ended(
    waits: Array, ends: Array, pending: Pending, sent_ns: int, *, ending: bool
) -> tuple[Array, Array, Array]:
    """Returns the waits whose end is known, or lost, by time; their ends; and which have one.

    All records from before `sent_ns` have come. So an end is lost if the thread waited anew before,
    and a stack if its wait ended before. Others stay pending, unless the stream is `ending`.
    """
    waits = take_rows(waits, np.argsort(waits["segment"]["t0_ns"], kind="stable"))
    place = {key: at for at, key in enumerate(_keys(ends["pid"], ends["begin_ns"]))}
    begun = _keys(waits["segment"]["pid"], waits["segment"]["t0_ns"])
    at = np.array([place.get(key, -1) for key in begun], np.int64)
    if not ending:
        newest = dict(key for key in begun if key[1] < sent_ns)
        is_open = np.array([t_ns >= newest.get(pid, 0) for pid, t_ns in begun], bool) & (at < 0)
        unused = ends["begin_ns"] + ends["ns"] >= sent_ns
        unused[at[at >= 0]] = False
        pending.add(Block.STACK, take_rows(waits, is_open))
        pending.add(Block.WAIT_END, take_rows(ends, unused))
        waits, at = take_rows(waits, ~is_open), at[~is_open]
    has_end = at >= 0
    if not len(ends):
        return waits, np.zeros(len(waits), ends.dtype), has_end
    return waits, take_rows(ends, at), has_end


def _keys(pids: Array, begins_ns: Array) -> list[tuple[int, int]]:
    return list(zip(pids.tolist(), begins_ns.tolist(), strict=True))
