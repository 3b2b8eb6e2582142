# SPDX-License-Identifier: Apache-2.0
"""Joules per query on a stock kernel: a MariaDB traced by its symbols, energy from powercap.

The packages draw a constant power plus a fixed power per busy CPU. qjoule is not given these
figures; its results must come close to them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nightly.vm.support.fake_rapl import CPU_MW, IDLE_MW
from nightly.vm.support.machine import Run
from nightly.vm.support.mariadb import STATEMENTS
from nightly.vm.support.streams import recorded
from tracing.recording import Run as Queries
from tracing.recording import attribute

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def trace_path(mariadb_vm: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("queries") / "trace"
    recorded(mariadb_vm, "queries").trace(directory)
    return directory


@pytest.fixture(scope="module")
def rows(trace_path: Path) -> dict[str, dict[str, Any]]:
    """Rows of the statements that were sent, by marker."""
    found = attribute(trace_path)["rows"]
    return {
        marker: next(row for row in found if marker in row["shape"]) for marker, _, _ in STATEMENTS
    }


def test_every_execution_is_seen_and_no_other(mariadb_vm: Run, trace_path: Path) -> None:
    queries = Queries(trace_path)
    assert not queries.loss
    assert set(queries.queries["rung"]) == {"symbol"}
    for marker, _, times in STATEMENTS:
        assert int(queries.having(marker)["executions"].sum()) == times
    selects = int(mariadb_vm.text("selects").split()[-1])
    assert int(queries.having("select")["executions"].sum()) == selects


def test_queries_cost_what_their_cpus_draw(rows: dict[str, dict[str, Any]]) -> None:
    """Within 15 %, because idle power is estimated from the windows of a few seconds."""
    watts = CPU_MW[0, "package"] / 1000
    assert CPU_MW[1, "package"] / 1000 == watts
    heavy = rows["m_heavy"]
    assert heavy["cpu_ns"] > 1e9
    assert heavy["energy_j"] / (heavy["cpu_ns"] / 1e9) == pytest.approx(watts, rel=0.15)


def test_idle_is_what_the_machine_draws_anyway(trace_path: Path) -> None:
    document = attribute(trace_path)
    idle_w = (IDLE_MW[0, "package"] + IDLE_MW[1, "package"]) / 1000
    expected_j = idle_w * document["trace"]["duration_s"]
    assert document["totals_j"]["idle"] == pytest.approx(expected_j, rel=0.15)


def test_energy_follows_the_work(rows: dict[str, dict[str, Any]]) -> None:
    for marker, _, times in STATEMENTS:
        assert rows[marker]["calls"] == times
        assert rows[marker]["energy_j"] > 0
        assert rows[marker]["cpu_ns"] > 0
    light, heavy = rows["m_light"], rows["m_heavy"]
    assert heavy["j_per_call"] > light["j_per_call"]
    assert heavy["cpu_ns"] / heavy["calls"] > light["cpu_ns"] / light["calls"]


def test_every_joule_has_one_owner(trace_path: Path) -> None:
    document = attribute(trace_path)
    assert document["energy_source"]["grade"] == "measured"
    for totals in document["domains_j"].values():
        parts = {part: round(joules * 1e9) for part, joules in totals.items()}
        measured_nj = parts.pop("measured")
        assert measured_nj > 0
        assert sum(parts.values()) == measured_nj
    of_rows = sum(round(row["energy_j"] * 1e9) for row in document["rows"])
    assert of_rows == round(document["totals_j"]["queries"] * 1e9)
