# SPDX-License-Identifier: Apache-2.0
"""Stolen time of a virtual machine, from table `cpu_time` to the rows and the weights."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import attribute_trace as hand
from attribute_trace import MS
from power_cases import known
from qjoule.commands import attribute as attribute_command
from qjoule.contract import CPU_TIME, STEAL_UNKNOWN
from qjoule.engine.attribute import attribute
from qjoule.engine.stolen import stolen_time
from qjoule.model.features import FEATURES, crowd, entry_features
from qjoule.model.result import Attribution, Row
from qjoule.model.row_sums import added
from qjoule.model.windows import without_stolen
from qjoule.reporters.json_report import to_json
from qjoule.stream.rows import cpu_time_rows
from qjoule.trace.reader import Trace

#: Half of what CPU 0 was busy was stolen, nothing of CPU 1: (t_ms, cpu, busy, idle, steal) in ms.
HALF = ((40, 0, 30, 10, 15), (40, 1, 20, 20, 0))
S = 1000.0


def reading(t_ms: float, cpu: int, busy: float, idle: float, steal: float | None) -> dict[str, Any]:
    row = {"t_ns": hand.at(t_ms), "cpu": cpu, "busy_ns": round(busy * MS)}
    stolen = None if steal is None else round(steal * MS)
    return row | {"idle_ns": round(idle * MS), "steal_ns": stolen}


def written(path: Path, readings: tuple[tuple[Any, ...], ...] = HALF) -> Path:
    return hand.write(path, cpu_time=[reading(*cpu_time) for cpu_time in readings])


def by_name(result: Attribution) -> dict[str, Row]:
    return {"".join(row.keys.values()): row for row in (*result.rows, *result.fixed) if row.keys}


def attributed(directory: Path, *arguments: str) -> str:
    command_line = [str(directory), "--memory", "none", *arguments]
    done = CliRunner().invoke(attribute_command.command, command_line)
    assert done.exit_code == 0, done.output
    return done.output


def test_a_rows_cpu_time_contains_what_was_stolen_of_it(tmp_path: Path) -> None:
    plain = by_name(attribute(Trace(hand.write(tmp_path / "plain"))))
    with_stolen = by_name(attribute(Trace(written(tmp_path / "t"))))
    assert {name: row.stolen_ns for name, row in with_stolen.items()} == {
        **{"aaaa": 10 * MS, "bbbb": 5 * MS, "shop-dbpurge": 0, "bash": 0},
        "shop-db(session overhead)": 0,
    }
    for name, row in with_stolen.items():
        assert row.cpu_ns == plain[name].cpu_ns
        assert row.energy_nj == plain[name].energy_nj
        assert plain[name].stolen_ns is None


def test_without_stolen_joules_go_by_the_time_that_threads_ran(tmp_path: Path) -> None:
    result = attribute(Trace(written(tmp_path / "t")), without_stolen=True)
    by_row = by_name(result)
    # First window: 5 + 5 + 5 ms of 1 J. Second: 5 + 10 + 5 ms of 2 J.
    assert by_row["aaaa"].energy_nj == pytest.approx(1e9 / 3 + 0.5e9, abs=1)
    assert by_row["bbbb"].energy_nj == pytest.approx(1e9 / 3, abs=1)
    assert by_row["shop-dbpurge"].energy_nj == pytest.approx(1e9 / 3, abs=1)
    assert by_row["bash"].energy_nj == 1_000_000_000
    assert sum(result.main.parts_nj.values()) == result.main.measured_nj == 3 * 10**9
    assert (by_row["aaaa"].cpu_ns, by_row["aaaa"].stolen_ns) == (20 * MS, 10 * MS)
    assert result.policy["stolen"] == "left out"


def test_without_stolen_times_shrink_and_counts_and_neighbours_stay() -> None:
    entries = known(1, (1.0, 1.5)).batch.entries
    left = without_stolen(replace(entries, stolen_ns=entries.cpu_ns / 2))
    assert left.cpu_ns == pytest.approx(entries.cpu_ns / 2, abs=1)
    assert left.cpu_ns + left.stolen_ns == pytest.approx(entries.cpu_ns, abs=0)
    assert left.shared_ns == pytest.approx(entries.shared_ns / 2, rel=1e-6)
    assert crowd(left) == pytest.approx(crowd(entries), rel=1e-6)
    windows = int(entries.window.max()) + 1
    before, after = entry_features(entries, windows), entry_features(left, windows)
    counts = [FEATURES.index(name) for name in ("cycles", "instructions", "llc_misses")]
    assert after[:, counts] == pytest.approx(before[:, counts], rel=1e-6)
    f2 = FEATURES.index("cycles_f2")
    assert after[:, f2] == pytest.approx(4 * before[:, f2], rel=1e-5)


@pytest.mark.parametrize("steal", [None, 0])
def test_where_nothing_was_stolen_weights_are_as_before(tmp_path: Path, steal: int | None) -> None:
    before = attribute(Trace(hand.write(tmp_path / "plain")))
    trace = Trace(written(tmp_path / "t", ((40, 0, 30, 10, steal), (40, 1, 20, 20, steal))))
    after = attribute(trace)
    assert [row.energy_nj for row in after.rows] == [row.energy_nj for row in before.rows]
    assert {row.stolen_ns for row in after.rows} == {steal}
    without = json.loads(to_json(attribute(trace, without_stolen=True)))
    assert without["policy"].pop("stolen")
    assert without == json.loads(to_json(after))


def test_formats_have_stolen_time_only_where_it_is_recorded(tmp_path: Path) -> None:
    plain, stolen = hand.write(tmp_path / "plain"), written(tmp_path / "t")
    for directory, has in ((plain, False), (stolen, True)):
        rows = json.loads(attributed(directory, "--format", "json"))["rows"]
        assert [row.get("stolen_ns") for row in rows] == ([10 * MS, 5 * MS] if has else [None] * 2)
        assert ("stolen_ns" in attributed(directory, "--format", "csv").splitlines()[0]) == has
        attributed(directory, "--format", "parquet", "-o", str(tmp_path / "rows"))
        assert ("stolen_ns" in pq.read_schema(tmp_path / "rows").names) == has
        assert ("stolen" in attributed(directory, "--columns", "waits")) == has
        assert "stolen" not in attributed(directory)
    table = attributed(stolen, "--columns", "waits", "--without-stolen")
    assert "50" in next(line for line in table.splitlines() if "select b" in line)
    assert "CPU time in which the host ran something else is no weight" in table
    assert "not recorded: nothing left out" in attributed(plain, "--without-stolen")


def test_rows_that_are_added_up_add_what_is_recorded(tmp_path: Path) -> None:
    rows = attribute(Trace(written(tmp_path / "t"))).rows
    old = attribute(Trace(hand.write(tmp_path / "old"))).rows
    assert added([*rows, *old], {}, apart=False).stolen_ns == 15 * MS
    assert added(old, {}, apart=False).stolen_ns is None


def shares(readings: list[tuple[Any, ...]], *times_ms: tuple[float, float]) -> list[float] | None:
    """Shares stolen of spans of CPU 0."""
    stolen = stolen_time(
        [hand.rows("cpu_time", [reading(*cpu_time) for cpu_time in readings])], hand.at(0)
    )
    if stolen is None:
        return None
    t0, t1 = np.array([[hand.at(t) for t in span] for span in times_ms], np.int64).T
    shares = stolen.shares(np.zeros(len(t0), np.uint16), t0, t1)
    return [0.0] * len(t0) if shares is None else shares.tolist()


def test_a_share_is_of_its_interval_and_a_segment_may_have_two() -> None:
    readings = [
        *((S, 0, 500, 500, 250), (2 * S, 0, 1500, 500, 250), (3 * S, 0, 2500, 500, 1250)),
        (4 * S, 0, 2600, 1400, 9999),
    ]
    spans = [(0, 10), (500, 510), (1500, 1510), (990, 1010), (2500, 2600), (3500, 3501)]
    stolen_shares = shares(readings, *spans, (4 * S + 1, 4 * S + 2), (-10, -5), (5, 5))
    assert stolen_shares == pytest.approx([0.5, 0.5, 0, 0.25, 1, 1, 0, 0, 0])


def test_sums_of_a_part_of_a_recording_count_from_its_first_reading() -> None:
    readings = [(S, 0, 90_000, 0, 80_000), (2 * S, 0, 90_800, 0, 80_200)]
    assert shares(readings, (100, 200), (1500, 1600)) == pytest.approx([0, 0.25])


def test_a_sum_that_goes_back_or_is_not_known_steals_nothing() -> None:
    back = [(S, 0, 1000, 0, 500), (2 * S, 0, 2000, 0, 100), (3 * S, 0, 1000, 0, 200)]
    assert shares(back, (0, 1000), (1200, 1900), (2200, 2900)) == pytest.approx([0.5, 0, 0])
    assert shares([(S, 0, 1000, 0, None)], (0, 1)) is None
    assert stolen_time([], hand.at(0)) is None


def test_the_tracers_unknown_is_null() -> None:
    times = np.zeros(2, CPU_TIME)
    times["steal_ns"] = STEAL_UNKNOWN, 7
    assert cpu_time_rows(times).column("steal_ns").to_pylist() == [None, 7]
