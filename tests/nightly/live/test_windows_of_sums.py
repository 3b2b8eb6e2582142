# SPDX-License-Identifier: Apache-2.0
"""Live view: when the tracer ends a window of sums, and when it reads the energy for it."""

from __future__ import annotations

import time

import numpy as np
import pytest

from qjoule.contract import Block, Mode
from tracing.animated_rapl import animated_rapl
from tracing.tracer import tracing

pytestmark = pytest.mark.root

WINDOW_MS = 100


def test_measured_energy_is_read_half_a_period_after_the_sums_ended() -> None:
    with animated_rapl() as rapl:
        options = ("--energy", rapl.option, "--window-ms", str(WINDOW_MS), "--only-running")
        with tracing(Mode.LIVE, *options) as session:
            time.sleep(1.5)
            assert session.finish() == ""
            ends = np.unique(session.records(Block.AGGREGATE)["t1_ns"]).astype(np.int64)
            readings = session.records(Block.ENERGY)
    times = np.unique(readings["t_ns"][readings["domain"] == 0]).astype(np.int64)
    assert len(ends) == len(times) >= 5, "something ran in every window, if only the tracer"
    late_ns = times - ends
    assert (late_ns[:-1] >= 500_000).all()
    assert late_ns.min() == late_ns[-1] == 0, "the stream's last window ends with its reading"
