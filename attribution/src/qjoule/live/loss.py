# SPDX-License-Identifier: Apache-2.0
"""Loss of a trace between two moments, from running sums per CPU and cause."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


class LossSums:
    """The `loss` table of a trace, prepared for queries of any span of time."""

    def __init__(self, loss: pa.Table) -> None:
        self._series: dict[tuple[int | None, str], list[tuple[int, int, int]]] = {}
        for row in loss.select(["t_ns", "cpu", "cause", "count", "lost_ns"]).to_pylist():
            sums = (row["t_ns"], row["count"], row["lost_ns"])
            self._series.setdefault((row["cpu"], row["cause"]), []).append(sums)

    def between(self, begin_ns: int, end_ns: int) -> tuple[dict[str, int], int]:
        """Count by cause, only of causes that happened, and lost CPU time after `begin_ns`."""
        before, before_ns = self._until(begin_ns)
        until, until_ns = self._until(end_ns)
        counts = {cause: count - before.get(cause, 0) for cause, count in sorted(until.items())}
        return {cause: count for cause, count in counts.items() if count}, until_ns - before_ns

    def _until(self, t_ns: int) -> tuple[dict[str, int], int]:
        counts: dict[str, int] = {}
        lost_ns = 0
        for (_, cause), sums in self._series.items():
            known = np.array([(count, ns) for at, count, ns in sums if at <= t_ns], np.int64)
            if len(known):
                counts[cause] = counts.get(cause, 0) + int(known[:, 0].max())
                lost_ns += int(known[:, 1].max())
        return counts, lost_ns
