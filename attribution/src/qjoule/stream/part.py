# SPDX-License-Identifier: Apache-2.0
"""A part that was cut out of a recording: which of its records count."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qjoule.contract import Block, QueryFlag
from qjoule.trace.columns import Array


@dataclass(frozen=True)
class LostBefore:
    """Running sums of a CPU and cause (`qj_loss_count`) when the part begins."""

    cpu: int
    cause: int
    count: int
    lost_ns: int


@dataclass(frozen=True)
class PartOf:
    """The part's bounds.

    All that ran from `begin_ns` to `end_ns` is known. What was sent of later times is not whole:
    slices may still have been open. So energy read after `end_ns` is left out, and so are queries
    that ended outside, whose energy is not in the part. One that began before is marked: only what
    it took since is known. `frames_before`: frames that precede it.
    """

    begin_ns: int
    end_ns: int
    frames_before: int = 0
    lost: tuple[LostBefore, ...] = ()

    def within(self, kind: Block, records: Array) -> Array:
        """Those records that belong to the part, with loss since it began."""
        match kind:
            case Block.ENERGY:
                mask = (records["t_ns"] >= self.begin_ns) & (records["t_ns"] <= self.end_ns)
                return records[mask]
            case Block.QUERY | Block.CHILD:
                return self._queries(records)
            case Block.LOSS:
                return self._since(records)
            case _:
                return records

    def _queries(self, records: Array) -> Array:
        ends_ns = records["end_ns"]
        kept: Array = records[(ends_ns >= self.begin_ns) & (ends_ns <= self.end_ns)]
        cut = kept["begin_ns"] < self.begin_ns
        if cut.any():
            kept = kept.copy()
            kept["flags"][cut] |= np.uint32(QueryFlag.CUT)
        return kept

    def _since(self, records: Array) -> Array:
        before = {(one.cpu, one.cause): (one.count, one.lost_ns) for one in self.lost}
        since = records.copy()
        for one in since:
            count, lost_ns = before.get((int(one["cpu"]), int(one["cause"])), (0, 0))
            one["count"] = max(int(one["count"]) - count, 0)
            one["lost_ns"] = max(int(one["lost_ns"]) - lost_ns, 0)
        kept: Array = since[np.logical_or(since["count"] > 0, since["lost_ns"] > 0)]
        return kept
