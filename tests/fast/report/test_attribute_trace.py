# SPDX-License-Identifier: Apache-2.0
"""Attribution of handwritten traces, against results computed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attribute_trace as hand
from attribute_trace import MS
from qjoule.engine.attribute import attribute
from qjoule.model.coefficients import Coefficients, PowerInterval
from qjoule.model.result import Attribution, Row
from qjoule.reporters.json_report import to_json
from qjoule.reporters.provenance import heading
from qjoule.reporters.table import render
from qjoule.trace.meta import EnergyInfo, Server
from qjoule.trace.reader import Trace


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return hand.write(tmp_path / "t")


def attributed(tmp_path: Path, **changed: Any) -> Attribution:
    return attribute(Trace(hand.write(tmp_path / "changed", **changed)))


def rows(result: Attribution) -> dict[tuple[str, ...], Row]:
    """Rows by the values of their keys; those of idle and the like by their kind."""
    return {tuple(row.keys.values()) or (row.kind,): row for row in (*result.rows, *result.fixed)}


def test_energy_goes_by_cpu_time_and_adds_up(trace: Path) -> None:
    result = attribute(Trace(trace))
    by = rows(result)
    # First window: 10 + 10 + 5 ms of 1 J. Second: 10 + 10 + 5 ms of 2 J.
    assert by["aaaa",].energy_nj == 400_000_000 + 800_000_000
    assert by["bbbb",].energy_nj == 400_000_000
    assert by["shop-db", "purge"].energy_nj == 200_000_000
    assert by["bash",].energy_nj == 800_000_000
    assert by["shop-db", "(session overhead)"].energy_nj == 400_000_000
    assert result.main.measured_nj == 3 * 10**9 == sum(result.main.parts_nj.values())
    assert by["idle",].cpu_ns == 30 * MS
    assert result.coverage == pytest.approx(30 / 40)
    assert [row.keys["fingerprint"] for row in result.rows] == ["aaaa", "bbbb"]


def test_calls_are_executions_and_a_prepare_is_none(trace: Path) -> None:
    by = rows(attribute(Trace(trace)))
    assert by["aaaa",].calls == 1
    assert by["bbbb",].calls == 3
    assert by["aaaa",].latency_ns_mean == by["aaaa",].latency_ns_p99 == 12 * MS
    assert by["aaaa",].cpu_ns == 20 * MS
    assert (by["aaaa",].shape, by["aaaa",].attach_mode) == ("select a", "symbol")


def test_idle_power_is_taken_off_first_and_policies_move_only_it(trace: Path) -> None:
    calibrated = Coefficients(idle_w={(0, "package"): PowerInterval(25.0, 20.0, 30.0)})
    separate = attribute(Trace(trace), coefficients=calibrated)
    assert separate.main.parts_nj["idle"] == 2 * 500_000_000
    assert rows(separate)["bbbb",].energy_nj == 200_000_000
    even = attribute(Trace(trace), idle="even", coefficients=calibrated)
    assert even.main.parts_nj["idle"] == 0
    # Half a joule, over three owners; odd nanojoules go to the first.
    assert abs(rows(even)["bbbb",].energy_nj - (200_000_000 + 166_666_667)) <= 1
    proportional = attribute(Trace(trace), idle="proportional", coefficients=calibrated)
    assert rows(proportional)["bbbb",].energy_nj == 400_000_000
    assert even.main.measured_nj == proportional.main.measured_nj == separate.main.measured_nj


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
def test_groups(trace: Path, by: list[str], names: set[tuple[str, ...]]) -> None:
    result = attribute(Trace(trace), by)
    assert {tuple(row.keys.values()) for row in result.rows} == names
    assert result.main.parts_nj["queries"] == 1_600_000_000
    assert result.policy["by"] == ",".join(by)


def test_lost_cpu_time_is_residual(tmp_path: Path) -> None:
    loss = {"t_ns": hand.at(20), "cpu": 1, "cause": "segment", "count": 4, "lost_ns": 5 * MS}
    result = attributed(tmp_path, loss=[loss])
    assert result.main.parts_nj["residual"] == pytest.approx(10**9 / 6, abs=1)
    assert result.trace.loss == {"segment": 4}
    assert sum(result.main.parts_nj.values()) == 3 * 10**9


def test_loss_without_a_place_widens_every_row(trace: Path, tmp_path: Path) -> None:
    loss = {"t_ns": hand.at(20), "cpu": None, "cause": "query", "count": 1, "lost_ns": MS}
    without_loss = rows(attribute(Trace(trace)))
    for row in attributed(tmp_path, loss=[loss]).rows:
        before = without_loss[tuple(row.keys.values())]
        assert row.energy_nj == before.energy_nj
        assert row.energy_nj_ci95[0] < before.energy_nj_ci95[0]
        assert row.energy_nj_ci95[1] > before.energy_nj_ci95[1]


def test_a_window_of_unknown_energy_is_counted_and_in_no_row(tmp_path: Path) -> None:
    energy = [hand.energy(t, raw) for t, raw in ((0, 5 * 10**9), (20, 1), (40, 2 * 10**9 + 1))]
    result = attributed(tmp_path, energy=energy)
    assert result.unattributed_windows == 1
    assert result.window_causes == {"reset": 1}
    assert result.main.measured_nj == 2 * 10**9
    assert rows(result)["bbbb",].energy_nj == 0
    assert rows(result)["bbbb",].cpu_ns == 10 * MS


def test_without_energy_there_is_time_and_energies_are_null(tmp_path: Path) -> None:
    document = json.loads(to_json(attributed(tmp_path, energy=[], meta={"energy": EnergyInfo()})))
    assert document["energy_source"]["grade"] == "none"
    assert set(document["totals_j"].values()) == {None}
    row = next(row for row in document["rows"] if row["fingerprint"] == "bbbb")
    assert (row["energy_j"], row["cpu_ns"], row["latency_ns_mean"]) == (None, 10 * MS, 10 * MS)


def test_dram_is_its_own_ledger(tmp_path: Path) -> None:
    energy = [hand.energy(t, raw) for t, raw in ((0, 0), (20, 10**9), (40, 3 * 10**9))]
    energy += [hand.energy(t, raw, "dram") for t, raw in ((0, 0), (20, 10**8), (40, None))]
    result = attributed(tmp_path, energy=energy)
    assert [domain.name for domain in result.domains] == ["package", "dram"]
    assert [domain.measured_nj for domain in result.domains] == [3 * 10**9, 10**8]
    assert result.window_causes == {"dram missing": 1}
    assert rows(result)["bbbb",].energy_by_domain_nj == {"dram": 40_000_000}


# ---- by transaction ------------------------------------------------------------------------------

#: Queries 1 and 2 form a transaction; 2 is the COMMIT. 3 is in none.
TRANSACTION = {
    "transaction": 1,
    "begin_ns": hand.at(0),
    "end_ns": hand.at(20),
    "session": 7,
    "outcome": "committed",
    "statements": 2,
    "text": "begin; commit",
    "last": 2,
    "commit_ns": 10 * MS,
}


def test_a_transaction_is_one_call_and_says_what_its_commit_took(tmp_path: Path) -> None:
    queries = [hand.query(*row) for row in hand.QUERIES]
    queries[0]["transaction"] = queries[1]["transaction"] = 1
    path = hand.write(tmp_path / "transactions", queries=queries, transactions=[TRANSACTION])
    transactions = Trace(path)
    result = attribute(transactions, ["transaction"])
    by = {row.keys["transaction"]: row for row in result.rows}
    assert set(by) == {"begin; commit", "(none)"}
    transaction = by["begin; commit"]
    # 10 ms of each, in a window of 25 ms and 1 J.
    assert transaction.energy_nj == 800_000_000
    assert (transaction.calls, transaction.cpu_ns, transaction.latency_ns_mean) == (
        1,
        20 * MS,
        20 * MS,
    )
    assert (transaction.commit_nj, transaction.commit_ns_mean) == (400_000_000, 10 * MS)
    assert by["(none)"].commit_nj is None
    assert by["(none)"].calls == 0, "a PREPARE"
    plain = attribute(transactions)
    assert sum(row.energy_nj for row in result.rows) == sum(row.energy_nj for row in plain.rows)
    assert transaction.energy_nj_ci95[0] <= transaction.energy_nj <= transaction.energy_nj_ci95[1]
    document = json.loads(to_json(result))["rows"][0]
    assert (document["commit_j"], document["commit_ns_mean"]) == (0.4, 10 * MS)


# ---- servers without queries, and statements of procedures ---------------------------------------

#: Threads of a generic server, and their work where the second CPU was idle.
THREADS = [
    {"owner": 7, "kind": "server", "pid": 71, "tgid": 70, "server": 2, "role": "GC Thread#?"},
    {"owner": 8, "kind": "server", "pid": 72, "tgid": 70, "server": 2, "role": "ReadStage-?"},
]
WORK: list[tuple[float, float, int, int, int | None]] = [
    (5, 10, 1, 7, None),
    (10, 20, 1, 8, None),
]


def test_threads_of_a_server_without_queries_do_not_count_for_coverage(tmp_path: Path) -> None:
    result = attributed(
        tmp_path,
        owners=hand.OWNERS + THREADS,
        segments=[hand.segment(*row) for row in sorted(hand.SEGMENTS + WORK)],
        meta={
            "servers": (
                Server(1, "shop-db", "mysql"),
                Server(2, "java:9042", "generic", attach_mode="none"),
            )
        },
    )
    threads = {row.shape: (row.cpu_ns, row.attach_mode) for row in result.fixed if row.by_thread}
    assert threads == {"GC Thread#?": (5 * MS, "none"), "ReadStage-?": (10 * MS, "none")}
    assert result.coverage == pytest.approx(30 / 40)  # as without it
    assert sum(result.main.parts_nj.values()) == result.main.measured_nj
    assert "java:9042 none (by thread)" in render(result, width=120)


#: Query 1 ran from 0 to 10 ms; in it an insert from 2 to 6, and one without a text to 7.
CHILDREN = [
    hand.query(2, 6, 101, "aaaa", "child", {"parent": 1, "child": "bbbb", "executions": 0}),
    hand.query(6, 7, 102, "aaaa", "child", {"parent": 1, "child": None, "executions": 0}),
]
PARTS = [(0, 2, 0, 1, 1), (2, 6, 0, 1, 101), (6, 7, 0, 1, 102), (7, 10, 0, 1, 1)]


def test_statements_of_a_procedure_are_its_callers_unless_asked_for(
    trace: Path, tmp_path: Path
) -> None:
    queries = [*(hand.query(*row) for row in hand.QUERIES), *CHILDREN]
    segments = [hand.segment(*row) for row in sorted([*PARTS, *hand.SEGMENTS[1:]])]
    with_children = Trace(hand.write(tmp_path / "parts", queries=queries, segments=segments))
    without_children, as_callers = attribute(Trace(trace)), attribute(with_children)
    for row, other in zip(without_children.rows, as_callers.rows, strict=True):
        assert (row.keys, row.calls, row.cpu_ns) == (other.keys, other.calls, other.cpu_ns)
        assert (row.energy_nj, row.latency_ns_mean) == (other.energy_nj, other.latency_ns_mean)
    result = attribute(with_children, ["fingerprint", "child"])
    by = {tuple(row.keys.values()): (row.calls, row.cpu_ns) for row in result.rows}
    assert by == {
        ("aaaa", "(none)"): (1, 15 * MS),
        ("aaaa", "select b"): (1, 4 * MS),
        ("aaaa", "(no text)"): (1, MS),
        ("bbbb", "(none)"): (3, 10 * MS),
    }
    assert sum(row.energy_nj for row in result.rows) == sum(
        row.energy_nj for row in without_children.rows
    )


def test_counters_of_single_cores_help_to_divide_and_are_in_no_total(tmp_path: Path) -> None:
    """Two statements always run together on two cores; that of CPU 0 draws 3 times as much."""
    seconds, step = 12, 20
    busy_ms = [2 + 3 * (at * 7 % 6) for at in range(seconds * 1000 // step)]
    both_uj = np.cumsum([0, *(step * 10_000 + ms * 16_000 for ms in busy_ms)])
    each_uj = np.cumsum([0, *(ms * 4_000 for ms in busy_ms)])
    spans = [(at * step, at * step + ms) for at, ms in enumerate(busy_ms)]
    package = [hand.energy(at * step, int(uj) * 1000) for at, uj in enumerate(both_uj)]
    cores = [
        hand.energy(second * 1000, int(each_uj[second * 1000 // step]) * 1000 * times, "one_core")
        | {"die": cpu}
        for second in range(seconds + 1)
        for cpu, times in ((0, 3), (1, 1))
    ]
    second_thread = hand.OWNERS[1] | {"owner": 6, "pid": 13}
    written = {
        "meta": {"end_ns": hand.at(seconds * 1000)},
        "owners": [*hand.OWNERS, second_thread],
        "queries": [
            hand.query(0, seconds * 1000, number, name, "query", {})
            for number, name in ((1, "aaaa"), (2, "bbbb"))
        ],
        "segments": [
            hand.segment(a, b, cpu, owner, cpu + 1)
            for a, b in spans
            for cpu, owner in ((0, 1), (1, 6))
        ],
    }
    blind = attribute(Trace(hand.write(tmp_path / "a", energy=package, **written)))
    seeing = attribute(Trace(hand.write(tmp_path / "b", energy=package + cores, **written)))
    assert (blind.energy_source.cores, seeing.energy_source.cores) == ("", "measured per core")
    assert seeing.energy_source.domains == blind.energy_source.domains == ("package",)
    assert seeing.main.measured_nj == blind.main.measured_nj
    of = {row.keys["fingerprint"]: row.energy_nj for row in seeing.rows}
    assert of["aaaa"] > 1.5 * of["bbbb"]
    of = {row.keys["fingerprint"]: row.energy_nj for row in blind.rows}
    # They differ by what may linger after a sleep: it belongs to the last CPU.
    assert of["aaaa"] == pytest.approx(of["bbbb"], rel=0.05)
    assert any("between cores: measured per core" in text for _, text in heading(seeing))
    assert json.loads(to_json(seeing))["energy_source"]["cores"] == "measured per core"
    assert "cores" not in json.loads(to_json(blind))["energy_source"]
