# SPDX-License-Identifier: Apache-2.0
"""Random kills of shippers, workers and the scheduler: nothing is lost or counted twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.fleet import query_kills, ship_kills
from bench.fleet.population import Plan

from qjoule.fleet import dask_engine

pytestmark = pytest.mark.beside


def test_killed_shippers_lose_nothing_and_ship_nothing_twice(tmp_path: Path) -> None:
    plan = Plan(hosts=1, shapes=2, seed=5, calls_per_s=1.0)
    found = ship_kills.kill(tmp_path, 30, plan, hours=3)
    assert found.kills >= 30 and found.during > 0
    assert found.well, found


def test_killed_workers_and_schedulers_change_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed", reason="the extra `fleet` is not installed")
    monkeypatch.setattr(dask_engine, "_CONNECT_S", 3.0)  # how long a lost scheduler is waited for
    plan = Plan(hosts=5, shapes=2, seed=6, calls_per_s=1.0)
    found = query_kills.kill(tmp_path, 9, plan, every=4)
    assert found.workers >= 6 and found.schedulers >= 2
    assert found.well, found
