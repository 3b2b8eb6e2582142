# SPDX-License-Identifier: Apache-2.0
"""The part of each row's energy that a package draws once, from the split to every reporter."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

import attribute_trace
from model_cases import accounts
from power_cases import SHARED_W, Known, calibrated, known, learned
from qjoule.engine.attribute import attribute
from qjoule.model.coefficients import IDLE_POLICIES, Coefficients, IdlePolicy
from qjoule.model.renumbering import Renumbering
from qjoule.model.result import Attribution, Row
from qjoule.model.split import Split
from qjoule.reporters.csv_report import to_csv
from qjoule.reporters.json_report import document
from qjoule.reporters.live_detail import _figures
from qjoule.reporters.parquet_report import to_table
from qjoule.trace.reader import Trace

FACTORS = (1.2, 0.9, 1.0)
#: Power of the package of `attribute_trace`, drawn once while it is awake.
HAND_W = 20.0


@pytest.fixture(scope="module")
def case() -> Known:
    return known(3, FACTORS, windows=400)


def test_groups_that_are_moved_or_merged_take_it_along(case: Known) -> None:
    ledger = learned(case, calibrated(), refit=False)
    before = ledger.domains["package"].shared_nj.copy()
    moved, merged = ledger.copy(), ledger.copy()
    moved.move(0, 2)
    assert moved.domains["package"].shared_nj.tolist() == [0, before[1], before[0] + before[2]]
    merged.renumber(Renumbering(np.array([0, 0, 1]), 2))
    assert merged.domains["package"].shared_nj.tolist() == [before[0] + before[1], before[2]]
    assert ledger.domains["package"].shared_nj.tolist() == before.tolist()


@pytest.fixture
def hand(tmp_path: Path) -> Attribution:
    """The handwritten trace on a machine whose package draws `HAND_W` once.

    The package is awake in 35 of the 40 ms: 0.7 J are shared. The first window has one busy core
    for 15 ms and two for 5 ms, the second two for 10 ms and one for 5 ms.
    """
    coefficients = Coefficients(t=1.0, shared_w={(0, "package"): HAND_W}, calibrated=True)
    trace = Trace(attribute_trace.write(tmp_path / "t"))
    return attribute(trace, coefficients=coefficients)


def rows(attribution: Attribution) -> dict[str, Row]:
    return {row.keys["fingerprint"]: row for row in attribution.rows if "fingerprint" in row.keys}


def test_rows_have_their_part(hand: Attribution) -> None:
    whole = sum(row.shared_nj or 0 for row in (*hand.rows, *hand.fixed))
    assert whole == pytest.approx(HAND_W * 35e6, rel=0.01)
    by_fingerprint = rows(hand)
    assert by_fingerprint["bbbb"].shared_nj == pytest.approx(HAND_W * 10e6, rel=0.01)
    assert by_fingerprint["aaaa"].shared_nj == pytest.approx(HAND_W * (7.5e6 + 5e6), rel=0.01)
    assert all((row.shared_nj or 0) <= row.energy_nj for row in (*hand.rows, *hand.fixed))


def test_every_reporter_shows_it(hand: Attribution) -> None:
    of_json = {one.get("fingerprint"): one for one in document(hand)["rows"]}
    of_csv = {one["fingerprint"]: one for one in csv.DictReader(io.StringIO(to_csv(hand)))}
    of_parquet = {one["fingerprint"]: one for one in to_table(hand).to_pylist()}
    for name, row in rows(hand).items():
        assert row.shared_nj
        shared_j = row.shared_nj / 1e9
        assert json.loads(json.dumps(of_json[name]))["shared_j"] == shared_j
        assert float(of_csv[name]["shared_j"]) == shared_j
        assert of_parquet[name]["shared_j"] == shared_j
        assert dict(_figures(row, hand))["of it shared"] == f"{round(1e3 * shared_j)} mJ"


@pytest.mark.parametrize("idle", IDLE_POLICIES)
def test_shared_energy_is_what_splits_call_shared_and_follows_time(
    case: Known, idle: IdlePolicy
) -> None:
    """Errors of readings leave a few windows with less energy than the package draws once."""
    splits: list[Split] = []
    account = accounts(case.series, (0,), calibrated(), refit=False, idle=idle).new(
        closed=lambda _batch, _ledger, closed: splits.extend(closed)
    )
    account.add(case.batch)
    sums = account.finish().domains["package"]
    assert sums.shared_nj.sum() == sum(int(one.entry_shared_nj.sum()) for one in splits) > 0
    assert (sums.shared_nj <= sums.energy_nj).all()
    entries = case.batch.entries
    spent_ns = np.bincount(entries.group, entries.shared_ns, len(FACTORS))
    assert sums.shared_nj == pytest.approx(SHARED_W * spent_ns, rel=2e-3)
