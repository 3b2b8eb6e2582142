# SPDX-License-Identifier: Apache-2.0
"""A recorded trace becomes a workload: the same schedule, another machine's power."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bench.accuracy.real_traces import a_schedule, schedule_of, shortened

import attribute_trace
from qjoule.errors import QjouleError
from qjoule.trace.meta import Cpu

MS = attribute_trace.MS
BEGIN_NS = attribute_trace.BEGIN_NS


def test_segments_groups_and_queries_are_the_traces(tmp_path: Path) -> None:
    made = schedule_of(attribute_trace.write(tmp_path / "t"))
    names = [made.groups[g].name for g in made.segments.group.tolist()]
    at_ms = ((made.segments.t0_ns - BEGIN_NS) // MS).tolist()
    assert sorted(zip(at_ms, names, made.query.tolist(), strict=True)) == [
        (0, "aaaa", 0),
        (0, "shop-db purge", -1),
        (10, "bbbb", 1),
        (20, "aaaa", 2),
        (20, "bash", -1),
        (30, "shop-db (session overhead)", -1),
    ]
    assert {group.kind for group in made.groups} == {"queries", "background", "other_processes"}
    assert made.span_ns == (BEGIN_NS, BEGIN_NS + 40 * MS)
    assert (np.diff(made.segments.t0_ns) >= 0).all()


def test_siblings_share_a_core(tmp_path: Path) -> None:
    cpus = (Cpu(0, 0, 7, 0), Cpu(1, 0, 7, 0))
    made = schedule_of(attribute_trace.write(tmp_path / "t", meta={"cpus": cpus}))
    assert made.machine.core_slots().tolist() == [0, 0]


def test_a_case_has_the_schedule_and_a_truth(tmp_path: Path) -> None:
    # Long enough for windows of energy: the trace's 40 ms and two seconds of nothing.
    end = {"end_ns": BEGIN_NS + 2000 * MS}
    made = schedule_of(attribute_trace.write(tmp_path / "t", meta=end))
    case = made.case("recorded", 1)
    truth = case.truth.group_nj["package"]
    assert (truth[np.unique(made.segments.group)] > 0).all()
    assert case.truth.query_group.tolist() == [
        [g.name for g in made.groups].index(name) for name in ("aaaa", "bbbb", "aaaa")
    ]
    total = truth.sum() + case.truth.idle_nj["package"]
    assert total == pytest.approx(case.truth.total_nj["package"], rel=1e-9)


def test_a_long_trace_is_cut(tmp_path: Path) -> None:
    made = shortened(schedule_of(attribute_trace.write(tmp_path / "t")), 0.015)
    assert len(made.segments.cpu) == len(made.query) == 3
    assert made.segments.t1_ns.max() == made.span_ns[1] == BEGIN_NS + 15 * MS


def test_what_cannot_be_used_is_said(tmp_path: Path) -> None:
    assert "is not a trace" in str(a_schedule(tmp_path / "nothing", 1))
    empty = attribute_trace.write(tmp_path / "t", queries=[])
    with pytest.raises(QjouleError, match="ran for a query"):
        schedule_of(empty)
    lost = attribute_trace.write(tmp_path / "u", meta={"cpus": ()})
    with pytest.raises(QjouleError, match="which CPUs"):
        schedule_of(lost)
