# SPDX-License-Identifier: Apache-2.0
"""Converts the calls that clients report to sums like the kernel side's, for the live view.

These calls own no CPU time. They cannot be matched to the queries that the kernel side counted, so
in a grouping by a tag they are counted beside those. In other groupings only the calls of servers
whose queries no probe sees are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from qjoule.contract import AGGREGATE, LATENCY_BUCKETS, OwnerKind
from qjoule.engine.keys import TAG
from qjoule.engine.query_groups import Part
from qjoule.lazy_import import pc
from qjoule.live.window_assembler import Records
from qjoule.shapes.safe_text import sanitise
from qjoule.stream.reported_calls import CallReports, CallShapes, ReportedCall

_HALF_OCTAVES = 2


class CallSums:
    """Takes the calls of `reports` and keeps their shapes. Without `reports` there are no calls."""

    def __init__(
        self, reports: CallReports | None, name: Callable[[int, str, str], None], keys: Keys
    ) -> None:
        """`name` is called with shape, fingerprint and text of each new shape, `keys` its tags."""
        self._reports = reports
        self._name = name
        self._keys = keys
        self._shapes = CallShapes()

    def tags(self, shape: int) -> Mapping[str, str] | None:
        """The tags of a shape of calls; None if it is not such a shape."""
        return self._shapes.tags.get(shape)

    def take(self) -> Records:
        """What was reported since the last call; each reported call is counted at its end."""
        calls = self._reports.reported({}) if self._reports is not None else ()
        shapes = np.array([self._shapes.shape(call)[0] for call in calls], np.uint64)
        for shape, fingerprint, text, _ in self._shapes.take_new():
            self._name(shape, fingerprint, text)
            self._keys.meet(self._shapes.tags[shape])
        return sums(calls, shapes)


def sums(calls: Sequence[ReportedCall], shapes: npt.NDArray[np.uint64]) -> Records:
    """An aggregate record for each call, without CPU time."""
    found = np.zeros(len(calls), AGGREGATE)
    if not calls:
        return found
    begin_ns = np.array([call.begin_ns for call in calls], np.int64)
    end_ns = np.array([call.end_ns for call in calls], np.int64)
    found["t0_ns"] = found["t1_ns"] = end_ns
    found["shape"] = shapes
    found["server"] = [call.server for call in calls]
    found["owner_kind"] = OwnerKind.QUERY
    found["calls"] = found["unanswered"] = found["rowless"] = 1
    latency_ns = end_ns - begin_ns
    found["latency_ns"] = latency_ns
    timed = np.flatnonzero([call.ended for call in calls])
    found["latency"][timed, _buckets(latency_ns[timed])] = 1
    return found


def _buckets(latency_ns: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Half octaves from 1 us (qjoule.h, QJ_LATENCY_BUCKETS)."""
    octaves = np.log2(np.maximum(latency_ns, 1000) / 1000.0)
    buckets: npt.NDArray[np.int64] = (_HALF_OCTAVES * octaves).astype(np.int64)
    return np.minimum(buckets, LATENCY_BUCKETS - 1)


#: Number of keys offered, not counting one that the user gave by name.
MAX_KEYS = 4
#: Number of a trace's parts that are searched for keys.
MAX_PARTS = 256
#: Keys with another value for every traced request.
_IDS = ("trace", "span")


def offered(keys: Iterable[str]) -> list[str]:
    """The keys that fit into a title and a list of keys as they are, except ids."""
    return [key for key in keys if key not in _IDS and "," not in key and sanitise(key) == key]


class Keys:
    """The keys of tags so far, in order of appearance; each costs a ledger."""

    def __init__(self) -> None:
        self.offered: list[str] = []

    def meet(self, tags: Iterable[str]) -> None:
        """`tags`: their keys."""
        if len(self.offered) < MAX_KEYS:
            new = [key for key in offered(tags) if key not in self.offered]
            self.offered += new[: MAX_KEYS - len(self.offered)]


def groups_of_tags(queries: Sequence[Part]) -> tuple[str, ...]:
    """`tag:KEY` of the first keys in a trace's `queries`."""
    found: dict[str, None] = {}
    for part in queries[:MAX_PARTS]:
        table = part.read(["tags"])
        for chunk in table["tags"].chunks if table is not None else ():
            found |= dict.fromkeys(offered(pc.unique(chunk.keys).to_pylist()))
        if len(found) >= MAX_KEYS:
            break
    return tuple(TAG + key for key in list(found)[:MAX_KEYS])
