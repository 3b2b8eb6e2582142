# SPDX-License-Identifier: Apache-2.0
"""`qjoule attribute`: its formats, and what `--where`, `--top` and `--max-values` select."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

import attribute_trace as hand
from cli_runner import invoke
from qjoule.commands import attribute as attribute_command
from qjoule.commands import top as top_command
from qjoule.engine.attribute import attribute
from qjoule.engine.keys import selection
from qjoule.errors import QjouleError, UsageError
from qjoule.live.replay import ReplaySource
from qjoule.model.result import Row
from qjoule.model.tag_values import bound_tags
from qjoule.reporters.table import render
from qjoule.snapshots import Controls
from qjoule.trace.meta import EnergyInfo, Server
from qjoule.trace.reader import Trace

TENANTS = 6


run = partial(invoke, attribute_command.command)


def top(*arguments: object) -> Result:
    command_line = ["--replay", *arguments, "-b", "--json"]
    return invoke(top_command.command, *command_line)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return hand.write(tmp_path / "t")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """Two servers; queries of six tenants and of none, 2 ms each, for 2 s."""
    queries: list[dict[str, Any]] = []
    segments = []
    for number in range(1, 1001):
        begin, tenant = 2.0 * (number - 1), number % (TENANTS + 1)
        tags = [("tenant", str(tenant)), ("endpoint", "ab"[tenant % 2])] if tenant else None
        name = "aaaa" if number % 3 else "bbbb"
        queries.append(hand.query(begin, begin + 1.5, number, name, "query", {"tags": tags}))
        queries[-1]["server"] = 1 + number % 2
        segments.append(hand.segment(begin, begin + 1.5, 0, 1, number))
    energies = [hand.energy(20.0 * k, k * 10**8 + (k % 3) * 10**6) for k in range(101)]
    path = tmp_path_factory.mktemp("where") / "t"
    servers = (Server(1, "one", "mysql"), Server(2, "two", "mysql"))
    meta = {"end_ns": hand.BEGIN_NS + 2000 * hand.MS, "servers": servers}
    hand.write(path, meta=meta, queries=queries, segments=segments, energy=energies)
    return Trace(path)


def rows(trace: Trace, by: str, *where: str) -> list[Row]:
    return list(attribute(trace, by.split(","), where=selection(where)).rows)


def test_json_follows_its_schema_and_adds_up_to_the_last_digit(small: Path) -> None:
    document = json.loads(run(small, "--format", "json").output, parse_float=Decimal)
    assert document["schema"] == "qjoule.attribution/1"
    assert set(document) >= {"trace", "energy_source", "policy", "model", "totals_j", "rows"}
    totals = document["totals_j"]
    assert sum(value for name, value in totals.items() if name != "measured") == totals["measured"]
    row = document["rows"][0]
    assert row["fingerprint"] == "aaaa"
    fields = "shape server calls energy_j energy_j_ci95 j_per_call j_per_call_ci95 share cpu_ns "
    fields += "latency_ns_mean latency_ns_p50 latency_ns_p95 latency_ns_p99 attach_mode flags"
    assert set(fields.split()) <= set(row)


def test_errors_are_one_line(small: Path, tmp_path: Path) -> None:
    for arguments in (
        [small, "--format", "parquet"],
        [tmp_path / "nowhere"],
        [small, "--by", "colour"],
        [small, "--format", "csv", "-o", tmp_path / "no" / "dir"],
    ):
        error = run(*arguments).exception
        assert isinstance(error, QjouleError)
        assert "\n" not in str(error)


def test_top_folds_the_others_into_one_row_that_adds_up(small: Path) -> None:
    document = json.loads(run(small, "--by", "query", "--top", 1, "--format", "json").output)
    assert [row["query"] for row in document["rows"]][1:] == ["(2 others)"]
    energy = sum(row["energy_j"] for row in document["rows"])
    assert energy == pytest.approx(document["totals_j"]["queries"])


def test_queries_not_selected_are_one_row_for_each_server(trace: Trace) -> None:
    result = attribute(trace, ("tag:endpoint",), where=selection(["tag:tenant=3"]))
    chosen, *others = result.rows  # those not selected stand last, however much they used
    assert chosen.keys == {"tag:endpoint": "b"} and not chosen.not_selected
    assert all(row.not_selected for row in others)
    assert {row.server for row in others} == {"one", "two"}
    assert chosen.calls + sum(row.calls for row in others) == 1000
    assert sum(row.energy_nj for row in result.rows) == result.main.parts_nj["queries"]
    assert result.policy["where"] == "tag:tenant=3"
    text = render(result, width=120)
    assert "tag:tenant=3" in text
    assert "(other queries of one)" in text


def test_values_of_one_key_are_alternatives_and_all_keys_must_match(trace: Trace) -> None:
    def calls(*where: str) -> int:
        return sum(row.calls for row in rows(trace, "server", *where) if not row.not_selected)

    first, second = calls("tag:tenant=1"), calls("tag:tenant=2")
    assert calls("tag:tenant=1", "tag:tenant=2") == first + second
    assert 0 < calls("tag:tenant=1", "server=one") < first
    assert calls("tag:tenant=1", "tag:endpoint=a") == 0
    assert calls("fingerprint=aaaa") + calls("fingerprint=bbbb") == 1000
    for value in ("", "=", "not_selected", "a=b", "\x00\n'\"", "é" * 300):
        assert calls(f"tag:tenant={value}") == 0


@pytest.mark.parametrize("condition", ["tenant", "colour=red", "tag:=x"])
def test_a_wrong_condition_is_a_usage_error(condition: str) -> None:
    with pytest.raises(UsageError):
        selection([condition])


@pytest.mark.parametrize("by", ["tag:endpoint", "fingerprint", "tag:tenant,server"])
@pytest.mark.parametrize("where", [("tag:tenant=3",), ("tag:tenant=(none)", "server=two"), ()])
def test_a_replay_at_its_end_is_the_attribution(
    trace: Trace, by: str, where: Sequence[str]
) -> None:
    """Law 5 for grouping and filter: to the nJ; interval ends are sums of floats."""
    selected = selection(where)
    source = ReplaySource(trace, by=by.split(","), speed=0, where=selected)
    last = list(source.snapshots(Controls(0.3, by)))[-1].total
    attributed = attribute(trace, by.split(","), where=selected)
    assert last.policy == attributed.policy
    assert last.domains == attributed.domains
    for row, same in zip(
        (*last.rows, *last.fixed), (*attributed.rows, *attributed.fixed), strict=True
    ):
        for name in ("keys", "calls", "energy_nj", "cpu_ns"):
            assert getattr(row, name) == getattr(same, name)
        assert row.energy_nj_ci95 == pytest.approx(same.energy_nj_ci95, rel=1e-9, abs=2)


def test_attribute_and_top_take_where_and_max_values(trace: Trace) -> None:
    options = ["--by", "tag:tenant", "--where", "server=one", "--max-values", "2"]
    attributed = json.loads(run(trace.path, *options, "--format", "json").output)
    last = json.loads(top(trace.path, "-d", "3600", *options).output.splitlines()[-1])["interval"]
    assert attributed["policy"] == last["policy"]
    assert [row["tag:tenant"] for row in attributed["rows"]].count("other") == 1
    for row, same in zip(attributed["rows"], last["rows"], strict=True):
        assert (row["energy_j"], row["calls"]) == (same["energy_j"], same["calls"])


def test_the_error_of_a_total_is_beside_it_and_in_rows_if_asked_for(tmp_path: Path) -> None:
    path = hand.write(tmp_path / "t", meta={"energy": EnergyInfo("estimated", "estimated", "")})
    assert "TOTAL estimated ±50 %" in run(path).output
    for options in ([], ["--absolute"]):
        attributed = json.loads(run(path, *options, "--format", "json").output)
        last = json.loads(top(path, "-d", 3600, *options).output.splitlines()[-1])["interval"]
        assert attributed["energy_source"]["error_in_rows"] == bool(options)
        for row, same in zip(attributed["rows"], last["rows"], strict=True):
            assert row["energy_j_ci95"] == pytest.approx(same["energy_j_ci95"])


def test_values_of_a_tag_are_bounded_and_counted(trace: Trace) -> None:
    unbounded = attribute(trace, ("tag:tenant", "fingerprint"))
    bounded = bound_tags(unbounded, 3)
    assert len({row.keys["tag:tenant"] for row in bounded.rows}) == 4
    assert "4 more values of tag:tenant are 'other': see --max-values" in bounded.model.notes
    for field in ("energy_nj", "calls", "cpu_ns"):
        assert sum(getattr(row, field) for row in bounded.rows) == sum(
            getattr(row, field) for row in unbounded.rows
        )
    for row in bounded.rows:
        if row.keys["tag:tenant"] == "other":
            assert row.energy_nj_ci95[0] <= row.energy_nj <= row.energy_nj_ci95[1]
        else:
            assert row in unbounded.rows
    assert bound_tags(unbounded, TENANTS + 1) == unbounded
    assert bound_tags(attribute(trace), 1).rows == attribute(trace).rows
