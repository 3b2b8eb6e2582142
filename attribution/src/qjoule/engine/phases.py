# SPDX-License-Identifier: Apache-2.0
"""The windows of a recorded calibration run, and the power of each phase."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qjoule.engine import recorded
from qjoule.engine.attribute import AttributionContext, AttributionRequest
from qjoule.model.arrays import WindowBatch
from qjoule.model.energy import Bool, Cause, Series
from qjoule.model.fit.known_loads import Phase
from qjoule.model.labels import process
from qjoule.trace.reader import Trace


def phase_windows(trace: Trace, program: str) -> tuple[list[WindowBatch], tuple[Series, ...], Bool]:
    """Every window of a trace, in consecutive batches, and the counters of these windows.

    The last array (groups,) says which groups are processes with this name.
    """
    recording = recorded.read(trace)
    context = AttributionContext(recording, AttributionRequest())
    own = np.array([label == process(program) for label in context.labels], bool)
    return [*context.batches()], recording.energy.series, own


def phase_power_w(
    batches: Sequence[WindowBatch], series: Sequence[Series], phases: Sequence[Phase]
) -> list[tuple[int, dict[str, float]]]:
    """Per phase: its number of windows, and the mean power by "domain.package".

    Windows with unknown energy are ignored. Dies of one package add up.
    """
    found = []
    for phase in phases:
        windows_seen, power_w = 0, dict[str, float]()
        for s, one in enumerate(series):
            energy_nj = length_ns = count = 0
            for batch in batches:
                bounds = batch.energy.boundaries_ns
                inside = (bounds[:-1] >= phase.t0_ns) & (bounds[1:] <= phase.t1_ns)
                good = inside & (batch.energy.cause[s] == Cause.NONE)
                count += int(inside.sum())
                energy_nj += int(batch.energy.energy_nj[s][good].sum())
                length_ns += int(np.diff(bounds)[good].sum())
            windows_seen = max(windows_seen, count)
            if length_ns:
                name = f"{one.domain}.{one.package}"
                power_w[name] = power_w.get(name, 0.0) + energy_nj / length_ns
        found.append((windows_seen, power_w))
    return found
