# SPDX-License-Identifier: Apache-2.0
"""Queries that the kernel side of a live stream drew at random, with the names of their sessions.

bpf/core/sample.bpf.h says how they are drawn, `qjoule_fleet.sampling` what can be estimated from
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from qjoule.contract import SAMPLE
from qjoule.live.tagged_sums import LATE_NS
from qjoule.model.arrays import F64
from qjoule.snapshots import Sampled
from qjoule.stream.sessions import Sessions

if TYPE_CHECKING:
    from qjoule.stream.blocks import Frame
    from qjoule.stream.names import Names

#: The kernel side draws at most 1,000 in a second, and an interval has at most 60.
MAX_WAITING = 100_000
_UNIT = 2.0**-32  #: of a record's probability


class Samples:
    """Takes SAMPLE and SESSION blocks; `take` returns an interval's queries."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._sessions = Sessions()
        self._parts: list[npt.NDArray[np.void]] = []
        self._waiting = 0

    def add(self, records: npt.NDArray[np.void]) -> None:
        if self._waiting + len(records) <= MAX_WAITING:
            self._waiting += len(records)
            self._parts.append(records.copy())

    def add_session(self, frame: Frame) -> None:
        self._sessions.add(frame)
        self._sessions.take_rows()

    def take(self, now_ns: int) -> Sampled | None:
        """All queries that were added since the last call; None if there are none."""
        self._sessions.settle(max(0, now_ns - LATE_NS))
        if not self._parts:
            return None
        drawn = np.concatenate(self._parts)
        self._parts, self._waiting = [], 0
        queries = drawn["query"]
        sessions, end_ns = queries["session"], queries["end_ns"]
        users, databases, applications = self._sessions.names_of(sessions, end_ns)
        which, connections = self._sessions.connections(sessions, end_ns)
        clients = [None if one is None else one.partition(" ")[0] for one in connections]
        statements = (self._names.statement(shape) for shape in queries["shape"].tolist())
        return Sampled(
            queries,
            drawn["cpu_ns"].astype(np.int64),
            probabilities(drawn),
            now_ns - end_ns.astype(np.int64),
            [self._names.server(server) for server in queries["server"].tolist()],
            ["" if one is None else one[0] for one in statements],
            users.to_pylist(),
            databases.to_pylist(),
            applications.to_pylist(),
            [clients[at] for at in which.tolist()],
        )


def probabilities(drawn: npt.NDArray[np.void]) -> F64:
    """Of being drawn, of `SAMPLE` records."""
    assert drawn.dtype == SAMPLE
    parts = drawn["probability"].astype(np.float64)
    return np.where(parts == 0, 1.0, parts * _UNIT)
