# SPDX-License-Identifier: Apache-2.0
"""A real server's schedule, recorded now, is a workload for the accuracy bench."""

from __future__ import annotations

import numpy as np
import pytest
from bench.accuracy.real_traces import Schedule, a_schedule

pytestmark = [pytest.mark.root, pytest.mark.server]


def test_a_recording_of_now_becomes_cases() -> None:
    schedule = a_schedule(None, 1)
    assert isinstance(schedule, Schedule), schedule
    shapes = [group.name for group in schedule.groups if group.kind == "queries"]
    assert len(shapes) >= 3, "sysbench's five statements and the analytic one"
    case = schedule.case("recorded", 0)
    ran = np.unique(schedule.segments.group)
    assert (case.truth.group_nj["package"][ran] > 0).all()
