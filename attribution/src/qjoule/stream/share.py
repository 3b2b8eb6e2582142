# SPDX-License-Identifier: Apache-2.0
"""Which tables one reader of a stream makes: all of them, or one of two shares.

What a query row says never depends on segments, nor the other way round. So two processes that read
the same stream make the same tables as one does.
"""

from __future__ import annotations

from enum import Enum


class Share(Enum):
    """`TIMES`: segments, their owners, energy and loss. `QUERIES`: the rest."""

    ALL = "all"
    TIMES = "times"
    QUERIES = "queries"

    @property
    def has_times(self) -> bool:
        return self is not Share.QUERIES

    @property
    def has_queries(self) -> bool:
        return self is not Share.TIMES
