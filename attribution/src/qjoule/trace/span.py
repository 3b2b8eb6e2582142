# SPDX-License-Identifier: Apache-2.0
"""A stretch of a trace's time, to read only the segments that begin in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from qjoule.trace.views import view

LIES = "states times that its segments do not keep"


@dataclass(frozen=True)
class Span:
    """From `since_ns` on, and before `until_ns`; None: without that limit."""

    since_ns: int | None = None
    until_ns: int | None = None

    def overlaps(self, stated_ns: tuple[int, int]) -> bool:
        """Whether a row group whose first and last times these are may have rows of it."""
        after = self.since_ns is None or stated_ns[1] >= self.since_ns
        return after and (self.until_ns is None or stated_ns[0] < self.until_ns)

    def read(
        self,
        read: Callable[[], pa.Table | None],
        stated_ns: tuple[int, int],
        lies: Callable[[], object],
    ) -> pa.Table | None:
        """The rows of a group of segments that begin in the span.

        `lies` is called if the group has other times than it states: then another span's reader
        may miss some of its rows.
        """
        table = read()
        if self == ALL or table is None or not table.num_rows:
            return table
        t0_ns = view(table.column("t0_ns"))
        if int(t0_ns.min()) < stated_ns[0] or int(t0_ns.max()) > stated_ns[1]:
            lies()
        inside = np.ones(len(t0_ns), bool)
        if self.since_ns is not None:
            inside &= t0_ns >= self.since_ns
        if self.until_ns is not None:
            inside &= t0_ns < self.until_ns
        return table if inside.all() else table.filter(pa.array(inside))


ALL = Span()
