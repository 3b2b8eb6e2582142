# SPDX-License-Identifier: Apache-2.0
"""Latencies of a command's operations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from qjoule.studies.workload import Latencies


def latencies(times_ns: Sequence[int] | npt.NDArray[np.int64]) -> Latencies:
    """Mean and percentiles of at least one operation's."""
    values = np.asarray(times_ns, dtype=float)
    p50, p95, p99 = (float(value) for value in np.percentile(values, [50, 95, 99]))
    return Latencies(len(values), float(values.mean()), p50, p95, p99)
