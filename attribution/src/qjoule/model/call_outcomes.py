# SPDX-License-Identifier: Apache-2.0
"""How the calls of one row ended, and what they waited for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Outcomes(NamedTuple):
    """How a group's calls ended. A request of several executions has at most one error."""

    errors: int = 0  #: queries that ended with one
    unanswered: int = 0  #: calls whose end is unknown
    rows: int = 0  #: returned or changed, of all calls but the `rowless`
    rowless: int = 0  #: calls whose number of rows is unknown


class Waits(NamedTuple):
    """What the queries of a row waited for, in ns, summed over the queries whose waits are
    recorded."""

    latency_ns: int  #: of those queries; their threads ran for the remainder
    run_queue: int
    lock: int
    io: int
    network: int
    sleep: int
    other: int

    @property
    def ran_ns(self) -> int:
        """How long their threads ran between begin and end, without helpers in parallel."""
        return self.latency_ns - sum(self[1:])

    @staticmethod
    def added(parts: Iterable[Waits | None]) -> Waits | None:
        """The sum of the parts that are recorded; None without any."""
        recorded = [waits for waits in parts if waits is not None]
        return Waits(*map(sum, zip(*recorded, strict=True))) if recorded else None
