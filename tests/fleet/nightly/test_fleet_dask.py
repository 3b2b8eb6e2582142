# SPDX-License-Identifier: Apache-2.0
"""`--engine dask` gives the answers of one process."""

from __future__ import annotations

from pathlib import Path

import pytest

import fleet_dataset as made
from fleet_asked import asked, assert_same
from qjoule.fleet.dask_engine import DaskEngine

pytestmark = pytest.mark.beside
pytest.importorskip("distributed", reason="the extra `fleet` is not installed")


@pytest.mark.parametrize("by", ["shape", "tag:tenant"])
def test_questions_have_the_same_answer(
    tmp_path: Path, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qjoule.fleet.dask_engine._LEAST_PARTS", 2)
    fleet = made.Fleet(made.hosts(3), shapes=3, minutes=(0, 7, 31), tags=("alpha", "beta"))
    root = made.write(tmp_path, fleet)

    expected = asked(root, by, latency=True)
    assert_same(expected, asked(root, by, latency=True, engine=DaskEngine(threads=2)))
