# SPDX-License-Identifier: Apache-2.0
"""Traces with false contents of any kind still give a result that adds up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import attribute_trace as hand
from attribute_trace import MS
from qjoule.engine.attribute import attribute
from qjoule.reporters.json_report import to_json
from qjoule.trace.meta import Cpu
from qjoule.trace.reader import Trace

SEGMENTS = [hand.segment(*row) for row in hand.SEGMENTS]
QUERIES = [hand.query(*row) for row in hand.QUERIES]
ENERGY = [hand.energy(t, raw) for t, raw in ((0, 0), (20, 10**9), (40, 3 * 10**9))]
#: Clocks that disagree: energy is read before, after, and in another order than the segments ran.
CLOCKS = (
    [40, 20, 0],
    [0, 30, 10, 40],
    [0, 0, 0],
    [-500, -480, -460],
    [15, 10, 5, 25],
    [900, 20, 40],
)


def read_at(*times: float) -> dict[str, Any]:
    return {"energy": [hand.energy(t, i * 10**9) for i, t in enumerate(times)]}


LOST = {"t_ns": -(2**62), "cpu": 0, "cause": "segment", "count": 2**63, "lost_ns": 2**64 - 1}
NOTHING: dict[str, Any] = dict.fromkeys(("segments", "queries", "energy", "owners", "shapes"), ())


@pytest.mark.parametrize(
    "changed",
    [
        {"meta": {"cpus": ()}},
        {"meta": {"cpus": (Cpu(7, 1, 0, 7), Cpu(4_000_000_000, 0, 0, 0))}},
        {"meta": {"begin_ns": None, "end_ns": None}},
        {"meta": {"begin_ns": -(2**63), "end_ns": 2**63 - 1}},
        {"meta": {"begin_ns": hand.at(40), "end_ns": hand.at(0)}},
        {"meta": {"begin_ns": hand.at(0), "end_ns": hand.at(0)}},
        {"meta": {"begin_ns": 0, "end_ns": 2**62}, "energy": []},
        {"meta": {"begin_ns": -(2**63), "end_ns": 2**63 - 1}, "energy": []},
        {"segments": [SEGMENTS[0] | {"t0_ns": -(2**63), "t1_ns": 2**63 - 1}, *SEGMENTS]},
        {"segments": []},
        NOTHING,
        {"energy": ENERGY[:1]},
        {"energy": [*ENERGY[:2], ENERGY[2] | {"raw": 2**64 - 1}]},
        *({"energy": [row | {"unit_j": unit} for row in ENERGY]} for unit in (0, 5e-324, 1e308)),
        {"energy": [row | {"unit_j": float("nan")} for row in ENERGY]},
        {"energy": [row | {"range": 2**64 - 1} for row in ENERGY]},
        *(read_at(*times) for times in CLOCKS),
        *(read_at(*times) | {"meta": {"begin_ns": None, "end_ns": None}} for times in CLOCKS),
        {"queries": [*QUERIES, *QUERIES]},
        {"queries": [QUERIES[0] | {"begin_ns": 2**62, "end_ns": -(2**62)}]},
        {"loss": [LOST, LOST | {"cpu": 5000, "t_ns": hand.at(3), "lost_ns": MS}]},
    ],
    ids=str,
)
def test_it_adds_up_all_the_same(tmp_path: Path, changed: dict[str, Any]) -> None:
    found = attribute(Trace(hand.write(tmp_path / "t", **changed)))
    for domain in found.domains:
        assert sum(domain.parts_nj.values()) == domain.measured_nj
        assert min(domain.parts_nj.values()) >= 0
    to_json(found)  # raises for NaN and infinity
