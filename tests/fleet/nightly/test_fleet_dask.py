# SPDX-License-Identifier: Apache-2.0
"""`--engine dask` with workers that are processes, and die: answers are those of one process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import fleet_dataset as made
import long_trace
from fleet_asked import asked, assert_same
from qjoule.engine.attribute import Asked, attribute
from qjoule.errors import QjouleError
from qjoule.fleet import attribution
from qjoule.fleet.attribution import Order, attributed
from qjoule.fleet.cluster import DaskWorkers, dask_workers
from qjoule.fleet.dask_engine import DaskEngine
from qjoule.reporters.json_report import to_json
from qjoule.trace.reader import Trace

pytestmark = pytest.mark.beside
pytest.importorskip("distributed", reason="the extra `fleet` is not installed")


@pytest.fixture(scope="module")
def workers() -> Iterator[DaskWorkers]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # the workers find this module
        with dask_workers(None, 2) as started:
            yield started


def test_attribution_is_that_of_one_process(workers: DaskWorkers, tmp_path: Path) -> None:
    path = long_trace.write(tmp_path / "t", 1, 65)
    # The algebra library of each process has one thread, so that bytes are equal, not only nJ.
    expected, _ = workers.submit(attribution.whole, str(path), Asked()).result()
    ((answer, _),) = attributed([Order(Trace(path), Asked(), lambda cells: cells)], workers)
    assert to_json(answer) == to_json(expected)
    here = attribute(Trace(path))
    assert [row.energy_nj for row in here.rows] == [row.energy_nj for row in answer.rows]
    trace = Trace(path)
    path.rename(tmp_path / "gone")
    with pytest.raises(QjouleError, match="is not a trace"):
        attributed([Order(trace, Asked())], workers)


@pytest.mark.parametrize("by", ["shape", "tag:tenant"])
def test_questions_have_the_same_answer(
    tmp_path: Path, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qjoule.fleet.dask_engine._LEAST_PARTS", 2)
    fleet = made.Fleet(made.hosts(3), shapes=3, minutes=(0, 7, 31), tags=("alpha", "beta"))
    root = made.write(tmp_path, fleet)

    expected = asked(root, by, latency=True)
    assert_same(expected, asked(root, by, latency=True, engine=DaskEngine(threads=2)))
