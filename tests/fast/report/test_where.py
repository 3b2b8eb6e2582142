# SPDX-License-Identifier: Apache-2.0
"""`--where`: selected queries row by row, the others as one row for each server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from click.testing import CliRunner

import attribute_trace as hand
from qjoule.commands.attribute import command
from qjoule.commands.top import command as top
from qjoule.engine.attribute import attribute
from qjoule.engine.selection import selection
from qjoule.errors import UsageError
from qjoule.live.replay import ReplaySource
from qjoule.live.value_limit import LimitedValues
from qjoule.model.fold import bound_tags
from qjoule.reporters.live_state import ViewState
from qjoule.reporters.table import render
from qjoule.snapshots import Controls
from qjoule.trace.meta import Server
from qjoule.trace.reader import Trace

TENANTS = 6


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


def rows(trace: Trace, by: str, *where: str) -> list[Any]:
    return list(attribute(trace, by.split(","), where=selection(where)).rows)


def test_others_are_one_row_for_each_server_and_everything_adds_up(trace: Trace) -> None:
    found = attribute(trace, ("tag:endpoint",), where=selection(["tag:tenant=3"]))
    (chosen,) = [row for row in found.rows if not row.not_selected]
    others = [row for row in found.rows if row.not_selected]
    assert chosen.keys == {"tag:endpoint": "b"}
    assert [row.server for row in others] in (["one", "two"], ["two", "one"])
    assert chosen.calls + sum(row.calls for row in others) == 1000
    assert sum(row.energy_nj for row in found.rows) == found.main.parts_nj["queries"]
    assert found.policy["where"] == "tag:tenant=3"


def test_what_is_left_over_stands_last_however_much_it_is(trace: Trace) -> None:
    found = rows(trace, "tag:tenant", "tag:tenant=1", "tag:tenant=2")
    assert [row.not_selected for row in found] == [False, False, True, True]


def test_selections_of_a_key_add_up_to_all(trace: Trace) -> None:
    all_tenants = ["(none)", *map(str, range(1, TENANTS + 1))]
    whole = rows(trace, "fingerprint")
    for fingerprint in ("aaaa", "bbbb"):
        (all_calls,) = [row for row in whole if row.keys["fingerprint"] == fingerprint]
        chosen = [
            row
            for tenant in all_tenants
            for row in rows(trace, "fingerprint", f"tag:tenant={tenant}")
            if row.keys["fingerprint"] == fingerprint
        ]
        assert sum(row.calls for row in chosen) == all_calls.calls
        assert sum(row.cpu_ns for row in chosen) == all_calls.cpu_ns
    every = rows(trace, "fingerprint", *(f"tag:tenant={tenant}" for tenant in all_tenants))
    assert [(row.keys, row.calls, row.energy_nj) for row in every] == [
        (row.keys, row.calls, row.energy_nj) for row in whole
    ]


def test_of_one_key_any_value_will_do_of_several_keys_all_must(trace: Trace) -> None:
    def calls(*where: str) -> int:
        found = rows(trace, "server", *where)
        return sum(row.calls for row in found if not row.not_selected)

    one, two = calls("tag:tenant=1"), calls("tag:tenant=2")
    assert calls("tag:tenant=1", "tag:tenant=2") == one + two
    assert 0 < calls("tag:tenant=1", "server=one") < one
    assert calls("tag:tenant=1", "tag:endpoint=a") == 0
    assert calls("tag:nobody=said") == 0
    assert calls("fingerprint=aaaa") + calls("fingerprint=bbbb") == 1000


@pytest.mark.parametrize(
    ("condition", "words"),
    [("tenant", "give KEY=VALUE"), ("colour=red", "cannot select by"), ("tag:=x", "cannot select")],
)
def test_conditions_that_make_no_sense(condition: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        selection([condition])


def test_a_value_may_hold_anything(trace: Trace) -> None:
    for value in ("", "=", "not_selected", "a=b", "\x00\n'\"", "é" * 300):
        found = rows(trace, "tag:tenant", f"tag:tenant={value}")
        assert all(row.not_selected for row in found)
        assert sum(row.calls for row in found) == 1000


@pytest.mark.parametrize("by", ["tag:endpoint", "fingerprint", "server", "tag:tenant,server"])
@pytest.mark.parametrize("where", [("tag:tenant=3",), ("tag:tenant=(none)", "server=two"), ()])
def test_a_replay_at_its_end_is_the_attribution(
    trace: Trace, by: str, where: Sequence[str]
) -> None:
    """Law 5 for grouping and filter: to the nJ; interval ends are sums of floats."""
    selected = selection(where)
    source = ReplaySource(trace, by=by.split(","), speed=0, where=selected)
    last = list(source.snapshots(Controls(0.3, by)))[-1].total
    whole = attribute(trace, by.split(","), where=selected)
    assert last.policy == whole.policy
    assert last.domains == whole.domains
    for one, same in zip((*last.rows, *last.fixed), (*whole.rows, *whole.fixed), strict=True):
        assert (one.keys, one.calls, one.energy_nj, one.cpu_ns) == (
            same.keys,
            same.calls,
            same.energy_nj,
            same.cpu_ns,
        )
        assert one.energy_nj_ci95 == pytest.approx(same.energy_nj_ci95, rel=1e-9, abs=2)


def test_both_commands_take_it(trace: Trace) -> None:
    options = ["--by", "tag:endpoint", "--where", "tag:tenant=3"]
    one = CliRunner().invoke(command, [str(trace.path), *options, "--format", "json"])
    replayed = ["--replay", str(trace.path), "-b", "-d", "3600", "--json", *options]
    other = CliRunner().invoke(top, replayed)
    assert (one.exit_code, other.exit_code) == (0, 0), (one.output, other.output)
    whole, last = json.loads(one.output), json.loads(other.output.splitlines()[-1])["interval"]
    assert whole["policy"] == last["policy"]
    for row, same in zip(whole["rows"], last["rows"], strict=True):
        assert row["energy_j"] == same["energy_j"]
        assert row["calls"] == same["calls"]


def test_a_live_view_says_that_it_knows_no_tags() -> None:
    error = CliRunner().invoke(top, ["-b", "--where", "tag:tenant=3"]).exception
    assert isinstance(error, UsageError)
    assert "--replay" in str(error)


def test_the_table_names_what_was_asked_for(trace: Trace) -> None:
    found = attribute(trace, ("tag:endpoint",), where=selection(["tag:tenant=3"]))
    text = render(found, width=120)
    assert "tag:tenant=3" in text
    assert "(other queries of one)" in text


def test_a_view_shows_what_was_asked_for_and_filters_by_key_and_value(trace: Trace) -> None:
    source = ReplaySource(
        trace, by=("tag:tenant", "tag:endpoint"), speed=0, where=selection(["tag:endpoint=a"])
    )
    state = ViewState()
    state.accept(list(source.snapshots(Controls(3600.0, "tag:tenant,tag:endpoint")))[-1])
    assert {row.keys["tag:tenant"] for row in state.rows()} == {"2", "4", "6"}
    state.filter = "TENANT=4"
    assert [row.keys["tag:tenant"] for row in state.rows()] == ["4"]


def test_values_of_a_tag_are_bounded_and_counted(trace: Trace) -> None:
    whole = attribute(trace, ("tag:tenant", "fingerprint"))
    found = bound_tags(whole, 3)
    values = {row.keys["tag:tenant"] for row in found.rows}
    assert len(values) == 4
    assert "other" in values
    assert "4 more values of tag:tenant are 'other': see --max-values" in found.model.notes
    for field in ("energy_nj", "calls", "cpu_ns"):
        assert sum(getattr(row, field) for row in found.rows) == sum(
            getattr(row, field) for row in whole.rows
        )
    kept = {(row.keys["tag:tenant"], row.keys["fingerprint"]): row for row in whole.rows}
    for row in found.rows:
        if row.keys["tag:tenant"] != "other":
            assert row == kept[row.keys["tag:tenant"], row.keys["fingerprint"]]
        else:
            assert row.energy_nj_ci95[0] <= row.energy_nj <= row.energy_nj_ci95[1]
    assert bound_tags(whole, TENANTS + 1) == whole
    assert bound_tags(attribute(trace), 1).rows == attribute(trace).rows


def test_the_bound_is_an_option(trace: Trace) -> None:
    options = ["--by", "tag:tenant", "--max-values", "2", "--format", "json"]
    found = json.loads(CliRunner().invoke(command, [str(trace.path), *options]).output)
    assert [row["tag:tenant"] for row in found["rows"]].count("other") == 1
    assert len(found["rows"]) == 3


def test_a_view_names_the_same_values_in_each_interval(trace: Trace) -> None:
    by = ("tag:tenant",)
    seen = list(LimitedValues(ReplaySource(trace, by=by, speed=0), 2).snapshots(Controls(0.5, *by)))
    plain = list(ReplaySource(trace, by=by, speed=0).snapshots(Controls(0.5, *by)))
    assert len(seen) == len(plain) > 2
    for one, whole in zip(seen, plain, strict=True):
        named = {row.keys["tag:tenant"] for row in one.total.rows}
        assert len(named) == 3 and "other" in named
        assert {row.keys["tag:tenant"] for row in one.interval.rows} <= named
        for bounded, free in ((one.total, whole.total), (one.interval, whole.interval)):
            assert sum(row.energy_nj for row in bounded.rows) == sum(
                row.energy_nj for row in free.rows
            )
        assert one.total == bound_tags(whole.total, 2)


def test_top_has_the_bound_as_an_option(trace: Trace) -> None:
    options = ["--replay", str(trace.path), "-b", "-n", "1", "--json", "--by", "tag:tenant"]
    found = json.loads(CliRunner().invoke(top, [*options, "--max-values", "2"]).output)
    assert len(found["interval"]["rows"]) == 3
    assert CliRunner().invoke(top, [*options, "--max-values", "0"]).exit_code == 2
