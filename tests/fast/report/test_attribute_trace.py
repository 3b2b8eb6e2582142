# SPDX-License-Identifier: Apache-2.0
"""Attribution of handwritten traces, against results computed by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import attribute_trace as hand
from attribute_trace import MS
from qjoule.engine.attribute import attribute
from qjoule.errors import UsageError
from qjoule.model.coefficients import Coefficients, PowerInterval
from qjoule.model.result import Attribution, Row
from qjoule.reporters.json_report import to_json
from qjoule.trace.meta import DomainInfo, EnergyInfo
from qjoule.trace.reader import Trace


def rows(found: Attribution) -> dict[tuple[str, ...], Row]:
    return {tuple(row.keys.values()) or (row.kind,): row for row in (*found.rows, *found.fixed)}


def test_energy_goes_by_cpu_time_and_adds_up(tmp_path: Path) -> None:
    found = attribute(Trace(hand.write(tmp_path / "t")))
    by = rows(found)
    # First window: 10 + 10 + 5 ms of 1 J. Second: 10 + 10 + 5 ms of 2 J.
    assert by["aaaa",].energy_nj == 400_000_000 + 800_000_000
    assert by["bbbb",].energy_nj == 400_000_000
    assert by["shop-db", "purge"].energy_nj == 200_000_000
    assert by["bash",].energy_nj == 800_000_000
    assert by["shop-db", "(session overhead)"].energy_nj == 400_000_000
    assert found.main.measured_nj == 3 * 10**9 == sum(found.main.parts_nj.values())
    assert by["idle",].cpu_ns == 30 * MS
    assert found.coverage == pytest.approx(30 / 40)
    assert [row.keys["fingerprint"] for row in found.rows] == ["aaaa", "bbbb"]


def test_calls_are_executions_and_a_prepare_is_none(tmp_path: Path) -> None:
    by = rows(attribute(Trace(hand.write(tmp_path / "t"))))
    assert by["aaaa",].calls == 1
    assert by["bbbb",].calls == 3
    assert by["aaaa",].latency_ns_mean == by["aaaa",].latency_ns_p99 == 12 * MS
    assert by["aaaa",].cpu_ns == 20 * MS
    assert by["aaaa",].shape == "select a"
    assert by["aaaa",].rung == "symbol"


def test_idle_power_is_taken_off_first_and_policies_move_only_it(tmp_path: Path) -> None:
    trace = hand.write(tmp_path / "t")
    known = Coefficients(idle_w={(0, "package"): PowerInterval(25.0, 20.0, 30.0)})
    separate = attribute(Trace(trace), coefficients=known)
    assert separate.main.parts_nj["idle"] == 2 * 500_000_000
    assert rows(separate)["bbbb",].energy_nj == 200_000_000
    even = attribute(Trace(trace), idle="even", coefficients=known)
    assert even.main.parts_nj["idle"] == 0
    # Half a joule, over three owners; odd nanojoules go to the first.
    assert abs(rows(even)["bbbb",].energy_nj - (200_000_000 + 166_666_667)) <= 1
    proportional = attribute(Trace(trace), idle="proportional", coefficients=known)
    assert rows(proportional)["bbbb",].energy_nj == 400_000_000
    assert even.main.measured_nj == proportional.main.measured_nj == separate.main.measured_nj


def test_an_estimate_knows_its_idle_power_and_says_how_unsure_it_is(tmp_path: Path) -> None:
    source = EnergyInfo("estimated", "estimated", "a power curve")
    domains = (DomainInfo(0, "package", 1e-9, idle_w=25.0),)
    meta = {"energy": source, "domains": domains}
    found = attribute(Trace(hand.write(tmp_path / "t", meta=meta)))
    assert found.main.parts_nj["idle"] == 2 * 500_000_000
    assert any("±50%" in note for note in found.model.notes)
    low, high = rows(found)["bbbb",].energy_nj_ci95
    assert low <= 100_000_000
    assert high >= 300_000_000


def test_uncalibrated_intervals_reach_down_and_say_so(tmp_path: Path) -> None:
    found = attribute(Trace(hand.write(tmp_path / "t")))
    low, _ = rows(found)["bbbb",].energy_nj_ci95
    # 15 of 40 ms of CPU time were idle: that share of the energy may have been idle energy.
    assert low <= 400_000_000 * 25 / 40
    assert any("idle power is unknown" in note for note in found.model.notes)
    assert not found.model.calibrated


@pytest.mark.parametrize(
    ("by", "names"),
    [
        (["tag:endpoint"], {("checkout",), ("(none)",)}),
        (["database", "user"], {("shop", "(none)"), ("(none)", "ann"), ("(none)", "(none)")}),
        (["server"], {("shop-db",)}),
        (["query"], {("1",), ("2",), ("3",)}),
        (["session"], {("7",), ("(none)",)}),
    ],
)
def test_groups(tmp_path: Path, by: list[str], names: set[tuple[str, ...]]) -> None:
    found = attribute(Trace(hand.write(tmp_path / "t")), by)
    assert {tuple(row.keys.values()) for row in found.rows} == names
    assert found.main.parts_nj["queries"] == 1_600_000_000
    assert found.policy["by"] == ",".join(by)


@pytest.mark.parametrize("by", [["nonsense"], [], ["tag:"], ["query", "query"]])
def test_a_wrong_key_is_one_line(tmp_path: Path, by: list[str]) -> None:
    trace = Trace(hand.write(tmp_path / "t"))
    with pytest.raises(UsageError):
        attribute(trace, by)


def test_a_query_without_a_record_is_the_servers_background(tmp_path: Path) -> None:
    found = attribute(Trace(hand.write(tmp_path / "t", queries=[])))
    assert not found.rows
    assert rows(found)["shop-db", "connection"].cpu_ns == 35 * MS
    assert found.coverage == 0


def test_a_statement_prepared_before_is_a_labelled_row_without_coverage(tmp_path: Path) -> None:
    queries = [hand.query(0, 10, 1, None, "execute", {"flags": 1})]
    found = attribute(Trace(hand.write(tmp_path / "t", queries=queries)))
    assert found.rows[0].keys == {"fingerprint": "(prepared before tracing began)"}
    assert found.coverage == 0


def test_lost_cpu_time_is_residual(tmp_path: Path) -> None:
    loss = [
        {"t_ns": hand.at(20), "cpu": 1, "cause": "segment", "count": 4, "lost_ns": 5 * MS},
    ]
    found = attribute(Trace(hand.write(tmp_path / "t", loss=loss)))
    assert found.main.parts_nj["residual"] == pytest.approx(10**9 / 6, abs=1)
    assert found.trace.loss == {"segment": 4}
    assert sum(found.main.parts_nj.values()) == 3 * 10**9
    calm = attribute(Trace(hand.write(tmp_path / "calm")))
    assert rows(found)["bbbb",].energy_nj_ci95[1] >= rows(calm)["bbbb",].energy_nj


@pytest.mark.parametrize("cause", ["query", "pump", "segment"])
def test_loss_without_a_place_widens_every_row(tmp_path: Path, cause: str) -> None:
    loss = [{"t_ns": hand.at(20), "cpu": None, "cause": cause, "count": 1, "lost_ns": MS}]
    calm = rows(attribute(Trace(hand.write(tmp_path / "calm"))))
    for row in attribute(Trace(hand.write(tmp_path / "t", loss=loss))).rows:
        was = calm[tuple(row.keys.values())]
        assert row.energy_nj == was.energy_nj
        assert row.energy_nj_ci95[0] < was.energy_nj_ci95[0]
        assert row.energy_nj_ci95[1] > was.energy_nj_ci95[1]


def test_an_unknown_window_is_counted_and_in_no_row(tmp_path: Path) -> None:
    energy = [hand.energy(t, raw) for t, raw in ((0, 5 * 10**9), (20, 1), (40, 2 * 10**9 + 1))]
    found = attribute(Trace(hand.write(tmp_path / "t", energy=energy)))
    assert found.unattributed_windows == 1
    assert found.window_causes == {"reset": 1}
    assert found.main.measured_nj == 2 * 10**9
    assert rows(found)["bbbb",].energy_nj == 0
    assert rows(found)["bbbb",].cpu_ns == 10 * MS


def test_without_energy_there_is_time_and_null_is_not_zero(tmp_path: Path) -> None:
    found = attribute(Trace(hand.write(tmp_path / "t", energy=[], meta={"energy": EnergyInfo()})))
    document = json.loads(to_json(found))
    assert document["energy_source"]["grade"] == "none"
    assert set(document["totals_j"].values()) == {None}
    row = next(row for row in document["rows"] if row["fingerprint"] == "bbbb")
    assert row["energy_j"] is None
    assert row["cpu_ns"] == 10 * MS
    assert row["latency_ns_mean"] == 10 * MS


def test_dram_is_its_own_ledger(tmp_path: Path) -> None:
    energy = [hand.energy(t, raw) for t, raw in ((0, 0), (20, 10**9), (40, 3 * 10**9))]
    energy += [hand.energy(t, raw, "dram") for t, raw in ((0, 0), (20, 10**8), (40, None))]
    found = attribute(Trace(hand.write(tmp_path / "t", energy=energy)))
    assert [domain.name for domain in found.domains] == ["package", "dram"]
    assert found.main.measured_nj == 3 * 10**9
    assert found.domains[1].measured_nj == 10**8
    assert found.window_causes == {"dram missing": 1}
    assert rows(found)["bbbb",].energy_by_domain_nj == {"dram": 40_000_000}


def test_overlapping_segments_are_counted_and_time_still_adds_up(tmp_path: Path) -> None:
    segments = [hand.segment(*row) for row in hand.SEGMENTS]
    segments.insert(1, hand.segment(0, 8, 0, 3, None))
    segments.sort(key=lambda row: row["t0_ns"])
    found = attribute(Trace(hand.write(tmp_path / "t", segments=segments)))
    assert found.anomalies["overlapping"] == 1
    total = sum(row.cpu_ns for row in (*found.rows, *found.fixed))
    assert total == 80 * MS


def test_segments_of_an_unknown_owner_are_some_process(tmp_path: Path) -> None:
    segments = [hand.segment(0, 10, 0, 99, None)]
    found = attribute(Trace(hand.write(tmp_path / "t", segments=segments)))
    assert rows(found)["(unknown)",].energy_nj == 10**9


def test_the_same_trace_gives_the_same_bytes(tmp_path: Path) -> None:
    trace = hand.write(tmp_path / "t")
    assert to_json(attribute(Trace(trace))) == to_json(attribute(Trace(trace)))
