# SPDX-License-Identifier: Apache-2.0
"""`qjoule attribute A B`: rows of several traces are added up by their keys."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import attribute_trace as hand
from qjoule.commands.attribute import command
from qjoule.engine.attribute import attribute
from qjoule.errors import UsageError
from qjoule.model.interval import EnergyErrors, of_recordings
from qjoule.model.result import Attribution, TracePart
from qjoule.model.together import together
from qjoule.reporters.table import render
from qjoule.trace.meta import DomainInfo, EnergyInfo, Server
from qjoule.trace.reader import Trace

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
BY = ("tag:trace",)
LATER_NS = 3_600 * 10**9


def queries(*tagged: str) -> list[dict[str, Any]]:
    """As in the handwritten trace; queries with these fingerprints belong to one request."""
    rows = []
    for begin, end, number, name, verb, extra in hand.QUERIES:
        tags = [("trace", TRACE_ID)] if name in tagged else extra.get("tags")
        rows.append(hand.query(begin, end, number, name, verb, {**extra, "tags": tags}))
    return rows


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Traces of two machines; a request ran a statement on each."""

    def write(name: str, host: str = "db1", *tagged: str, **changed: Any) -> Path:
        meta = {"host": host, "servers": (Server(1, "shop-db", "mysql"),)} | changed.pop("meta", {})
        changed.setdefault("queries", queries(*(tagged or ("aaaa",))))
        return hand.write(tmp_path / name, meta=meta, **changed)

    return write


def run(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def document(*arguments: object) -> dict[str, Any]:
    result = run(*arguments, "--format", "json")
    assert result.exit_code == 0, result.exception or result.output
    found: dict[str, Any] = json.loads(result.output, parse_float=Decimal)
    return found


def parts(*paths: Path) -> list[TracePart]:
    return [TracePart(path.name, attribute(Trace(path), BY)) for path in paths]


def test_a_request_over_two_machines_is_one_row(written: Callable[..., Path]) -> None:
    a, b = written("a", "db1", "aaaa"), written("b", "db2", "bbbb")
    found = document(a, b, "--by", "tag:trace")
    (row,) = [row for row in found["rows"] if row["tag:trace"] == TRACE_ID]
    assert row["calls"] == 1 + 3
    assert row["server"] == "(several)"
    assert set(row["by_trace"]) == {"a", "b"}
    assert sum(one["energy_j"] for one in row["by_trace"].values()) == row["energy_j"]
    alone = {
        name: next(
            r for r in document(path, "--by", "tag:trace")["rows"] if r["tag:trace"] == TRACE_ID
        )
        for name, path in (("a", a), ("b", b))
    }
    for name, mine in alone.items():
        assert row["by_trace"][name]["energy_j"] == mine["energy_j"]
        assert row["by_trace"][name]["energy_j_ci95"] == mine["energy_j_ci95"]
    low, high = row["energy_j_ci95"]
    lows, highs = zip(*(mine["energy_j_ci95"] for mine in alone.values()), strict=True)
    assert sum(lows) <= low <= row["energy_j"] <= high <= sum(highs) + Decimal("2e-9")


def test_totals_add_up_in_each_trace_and_in_all(written: Callable[..., Path]) -> None:
    found = document(written("a"), written("b", "db2"), written("c", "db3"), "--by", "tag:trace")
    assert [part["name"] for part in found["traces"]] == ["a", "b", "c"]
    for name, total in found["totals_j"].items():
        assert sum(part["totals_j"][name] for part in found["traces"]) == total
    for totals in (found["totals_j"], *(part["totals_j"] for part in found["traces"])):
        assert sum(j for name, j in totals.items() if name != "measured") == totals["measured"]
    assert sum(row["energy_j"] for row in (*found["rows"], *found["fixed"])) == 9
    for row in (*found["rows"], *found["fixed"]):
        assert sum(one["energy_j"] for one in row["by_trace"].values()) == row["energy_j"]
        assert sum(one["cpu_ns"] for one in row["by_trace"].values()) == row["cpu_ns"]
    servers = {row["server"] for row in found["fixed"] if row["kind"] == "background"}
    assert servers == {"shop-db on db1", "shop-db on db2", "shop-db on db3"}


def test_the_order_of_traces_changes_only_the_order_of_their_names(
    written: Callable[..., Path],
) -> None:
    three = parts(written("a"), written("b", "db2", "bbbb"), written("c", "db3"))
    one, other = together(three), together(three[::-1])
    nameless = [replace(x, parts=(), model=replace(x.model, notes=())) for x in (one, other)]
    assert nameless[0] == nameless[1]
    assert sorted(one.model.notes) == sorted(other.model.notes)


def test_the_same_recording_twice_is_refused_also_as_a_copy(
    written: Callable[..., Path], tmp_path: Path
) -> None:
    a = written("a")
    copied = Path(shutil.copytree(a, tmp_path / "copy"))
    for twice in (a, tmp_path / "." / "a", copied):
        error = run(a, twice).exception
        assert isinstance(error, UsageError)
        assert "the same recording: give it once" in str(error)


def test_one_server_recorded_twice_at_once_is_refused(written: Callable[..., Path]) -> None:
    begun_later = {"begin_ns": hand.BEGIN_NS + hand.MS}
    error = run(written("a"), written("b", meta=begun_later)).exception
    assert isinstance(error, UsageError)
    assert "both recorded shop-db on db1 at the same time" in str(error)


def test_two_servers_of_one_machine_at_once_are_said_to_share_its_energy(
    written: Callable[..., Path],
) -> None:
    other = {"begin_ns": hand.BEGIN_NS + 1, "servers": (Server(1, "other-db", "mysql"),)}
    found = document(written("a"), written("b", meta=other))
    assert (
        "a and b cover the same time of db1: what it drew is in both totals"
        in (found["model"]["notes"])
    )


def test_one_machine_at_two_times_has_no_such_note(written: Callable[..., Path]) -> None:
    later = {"realtime_offset_ns": LATER_NS}
    found = document(written("a"), written("b", meta=later))
    assert not any("cover the same time" in note for note in found["model"]["notes"])
    assert not any("hosts differ" in note for note in found["model"]["notes"])
    assert float(found["trace"]["duration_s"]) == pytest.approx(0.08)
    assert {row["server"] for row in found["rows"]} == {"shop-db"}


def test_what_differs_is_said(written: Callable[..., Path]) -> None:
    estimated = {"energy": EnergyInfo("estimated", "estimated", "")}
    found = document(written("a"), written("b", "db2", meta=estimated))
    notes = " | ".join(found["model"]["notes"])
    assert "hosts differ: db1 (a); db2 (b)" in notes
    assert "grades differ: estimated (b); simulated (a)" in notes
    assert found["energy_source"]["grade"] == "simulated"
    assert [part["energy_source"]["grade"] for part in found["traces"]] == [
        "simulated",
        "estimated",
    ]


def test_without_energy_in_one_the_sum_is_unknown_and_the_other_s_is_not(
    written: Callable[..., Path],
) -> None:
    none = written("b", "db2", meta={"energy": EnergyInfo(), "domains": ()}, energy=[])
    found = document(written("a"), none, "--by", "tag:trace")
    (row,) = [row for row in found["rows"] if row["tag:trace"] == TRACE_ID]
    assert row["energy_j"] is None
    assert row["calls"] == 2
    assert row["by_trace"]["a"]["energy_j"] > 0
    assert row["by_trace"]["b"]["energy_j"] is None
    assert found["totals_j"]["measured"] is None
    assert found["traces"][0]["totals_j"]["measured"] == 3
    assert "no energy in b: the sum of joules is not known" in found["model"]["notes"]


def test_a_domain_of_one_trace_is_in_no_sum(written: Callable[..., Path]) -> None:
    both = [
        hand.energy(t, raw * scale, domain)
        for t, raw in ((0, 0), (20, 10**9), (40, 3 * 10**9))
        for domain, scale in (("package", 1), ("dram", 2))
    ]
    domains = (DomainInfo(0, "package", 1e-9), DomainInfo(0, "dram", 1e-9))
    with_dram = written("b", "db2", energy=both, meta={"domains": domains})
    found = document(written("a"), with_dram)
    assert "dram was counted in b only: it is in no sum" in found["model"]["notes"]
    assert found["energy_source"]["domains"] == ["package"]
    assert not any("energy_by_domain_j" in row for row in found["rows"])


def test_a_main_domain_that_not_all_have_is_replaced_by_one_that_they_do(
    written: Callable[..., Path],
) -> None:
    def readings(*names: str) -> dict[str, Any]:
        rows = [
            hand.energy(t, raw * (1 + names.index(name)), name)
            for t, raw in ((0, 0), (20, 10**9), (40, 3 * 10**9))
            for name in names
        ]
        return {
            "energy": rows,
            "meta": {"domains": tuple(DomainInfo(0, name, 1e-9) for name in names)},
        }

    a, b = written("a", **readings("package", "psys")), written("b", "db2", **readings("psys"))
    found = document(a, b)
    assert found["energy_source"]["main_domain"] == "psys"
    assert found["totals_j"]["measured"] == 6 + 3
    assert [part["totals_j"]["measured"] for part in found["traces"]] == [6, 3]
    assert sum(row["energy_j"] for row in (*found["rows"], *found["fixed"])) == 9


@pytest.mark.parametrize("key", ["session", "thread"])
def test_numbers_of_one_trace_are_no_keys_of_several(
    written: Callable[..., Path], key: str
) -> None:
    a, b = written("a"), written("b", "db2")
    for options in (("--by", key), ("--where", f"{key}=7")):
        error = run(a, b, *options).exception
        assert isinstance(error, UsageError)
        assert f"{key} is a number of one trace" in str(error)
        assert run(a, *options).exit_code == 0


def test_other_policies_do_not_add_up(written: Callable[..., Path]) -> None:
    a, b = written("a"), written("b", "db2")
    one, other = attribute(Trace(a)), attribute(Trace(b), idle="even")
    with pytest.raises(ValueError, match="different policies"):
        together([TracePart("a", one), TracePart("b", other)])
    with pytest.raises(ValueError, match="nothing"):
        together([])


def test_the_table_says_what_each_trace_is(written: Callable[..., Path]) -> None:
    found = together(parts(written("a"), written("b", "db2")))
    text = render(found, width=140)
    assert "db1, db2" in text
    assert "a: " in text
    assert "3.000 J simulated" in text or "3 J simulated" in text
    assert TRACE_ID[:8] in text


def test_csv_and_parquet_say_how_many_traces(written: Callable[..., Path], tmp_path: Path) -> None:
    a, b = written("a"), written("b", "db2")
    lines = run(a, b, "--format", "csv").output.splitlines()
    assert lines[0].endswith(",traces")
    assert all(line.endswith(",2") for line in lines[1:])
    out = tmp_path / "out.parquet"
    assert run(a, b, "--format", "parquet", "-o", out).exit_code == 0


def test_noise_adds_in_squares_and_what_is_common_does_not() -> None:
    alone = EnergyErrors(9.0, 5.0, 1.0, 2.0, 3.0, 4.0, 6.0, 7.0)
    both = of_recordings([alone, alone])
    assert both == EnergyErrors(18.0, 10.0, 2.0, 4.0, 6.0, 8.0, 12.0, 14.0)
    noise = EnergyErrors(9e12, *[0.0] * 7)
    low, high = of_recordings([noise] * 4).ends(4e9)
    one = noise.ends(1e9)
    assert high - low == pytest.approx(2 * (one[1] - one[0]), abs=2)
    model = replace(noise, random_nj2=0.0, model_nj=3e6)
    low, high = of_recordings([model] * 4).ends(4e9)
    one = model.ends(1e9)
    assert high - low == pytest.approx(4 * (one[1] - one[0]), abs=8)


def test_intervals_of_a_sum_are_never_wider_than_all_ends_together(
    written: Callable[..., Path],
) -> None:
    three = parts(written("a"), written("b", "db2"), written("c", "db3"))
    whole = together(three)
    of: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
    for part in whole.parts:
        for row in everything(part.attribution):
            of.setdefault((row.kind, *sorted(row.keys.items())), []).append(row.energy_nj_ci95)
    for row in everything(whole):
        ends = of[(row.kind, *sorted(row.keys.items()))]
        low, high = (math.fsum(values) for values in zip(*ends, strict=True))
        assert low - 3 <= row.energy_nj_ci95[0]
        assert row.energy_nj_ci95[1] <= high + 3


def everything(attribution: Attribution) -> list[Any]:
    return [*attribution.rows, *attribution.fixed]
