# SPDX-License-Identifier: Apache-2.0
"""`--engine dask` gives the answers of one process, also where its processes are killed."""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing import forkserver, process, resource_tracker
from pathlib import Path
from typing import Any

import pytest
from fleet.bench.simulator import query_kills
from fleet.bench.simulator.population import Plan

import fleet_dataset
from fleet_answers import assert_same, top_of
from qjoule_fleet import dask_engine
from qjoule_fleet.dask_engine import DaskEngine

pytestmark = pytest.mark.beside
pytest.importorskip("distributed", reason="the extra `fleet` is not installed")


@pytest.fixture(scope="module", autouse=True)
def no_helpers_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A run leaves nothing behind of what multiprocessing keeps for the life of its process."""
    own: Any = process.current_process()
    own._config["tempdir"] = str(tmp_path_factory.mktemp("sockets"))
    yield
    del own._config["tempdir"]
    helpers: list[Any] = [forkserver._forkserver, resource_tracker._resource_tracker]
    for helper in helpers:
        helper._stop()


@pytest.mark.parametrize("by", ["shape", "tag:tenant"])
def test_questions_have_the_same_answer(
    tmp_path: Path, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_engine, "_LEAST_PARTS", 2)
    fleet = fleet_dataset.Fleet(
        fleet_dataset.hosts(3), shapes=3, minutes=(0, 7, 31), tags=("alpha", "beta")
    )
    root = fleet_dataset.write(tmp_path, fleet)

    expected = top_of(root, by, latency=True)
    assert_same(expected, top_of(root, by, latency=True, engine=DaskEngine(threads=2)))


def test_killed_workers_and_schedulers_change_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_engine, "_CONNECT_S", 3.0)  # how long a lost scheduler is waited for
    plan = Plan(hosts=5, shapes=2, seed=6, calls_per_s=1.0)
    killed = query_kills.kill(tmp_path, 9, plan, every=4)
    assert killed.workers >= 6 and killed.schedulers >= 2
    assert killed.well, killed
