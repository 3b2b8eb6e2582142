# SPDX-License-Identifier: Apache-2.0
"""Several traces as one (`qjoule attribute A B`): the sum equals its parts."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

import attribute_trace as hand
import model_cases
from model_cases import Case, cases
from qjoule.commands.attribute import command
from qjoule.engine.attribute import attribute
from qjoule.errors import UsageError
from qjoule.model import assemble, latency
from qjoule.model.coefficients import IDLE_POLICIES, IdlePolicy
from qjoule.model.interval import EnergyErrors, of_recordings
from qjoule.model.labels import GroupLabel, background, process
from qjoule.model.result import PARTS, Attribution, Row, TraceInfo, TracePart
from qjoule.model.together import together
from qjoule.reporters.table import render
from qjoule.trace.meta import DomainInfo, EnergyInfo, Server
from qjoule.trace.reader import Trace

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
BY = ("tag:trace",)


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
    parsed: dict[str, Any] = json.loads(result.output, parse_float=Decimal)
    return parsed


def parts(*paths: Path) -> list[TracePart]:
    return [TracePart(path.name, attribute(Trace(path), BY)) for path in paths]


@st.composite
def several(draw: st.DrawFn) -> list[TracePart]:
    """Two or three traces with the same policy."""
    drawn = draw(st.lists(cases(tidy=True), min_size=2, max_size=3))
    policy: IdlePolicy = draw(st.sampled_from(IDLE_POLICIES))
    return [
        drawn_part(n, replace(case, idle=policy), draw(st.sampled_from(HOSTS)))
        for n, case in enumerate(drawn)
    ]


def test_a_request_over_two_machines_is_one_row(written: Callable[..., Path]) -> None:
    paths = {"a": written("a", "db1", "aaaa"), "b": written("b", "db2", "bbbb")}

    def request(*traces: Path) -> dict[str, Any]:
        rows = document(*traces, "--by", "tag:trace")["rows"]
        (row,) = (one for one in rows if one["tag:trace"] == TRACE_ID)
        return dict(row)

    row, alone = request(*paths.values()), {name: request(path) for name, path in paths.items()}
    assert (row["calls"], row["server"]) == (1 + 3, "(several)")
    for figure in ("energy_j", "energy_j_ci95"):
        parts = {name: one[figure] for name, one in row["by_trace"].items()}
        assert parts == {name: one[figure] for name, one in alone.items()}
    assert sum(one["energy_j"] for one in alone.values()) == row["energy_j"]
    low, high = row["energy_j_ci95"]
    lows, highs = zip(*(mine["energy_j_ci95"] for mine in alone.values()), strict=True)
    assert sum(lows) <= low <= row["energy_j"] <= high <= sum(highs) + Decimal("2e-9")


def test_the_same_recording_or_server_twice_is_refused(
    written: Callable[..., Path], tmp_path: Path
) -> None:
    a = written("a")
    later = written("b", meta={"begin_ns": hand.BEGIN_NS + hand.MS})
    again = "the same recording: give it once"
    for twice, message in (
        (a, again),
        (tmp_path / "." / "a", again),
        (Path(shutil.copytree(a, tmp_path / "copy")), again),
        (later, "both recorded shop-db on db1 at the same time"),
    ):
        error = run(a, twice).exception
        assert isinstance(error, UsageError)
        assert message in str(error)


LABELS = [GroupLabel("queries", (("tag:trace", f"t{g}"),), server="db") for g in range(3)]


LABELS += [background("db", "purge"), process("bash"), process("p")]


HOSTS = ("db1", "db2", "")


def everything(attribution: Attribution) -> list[Row]:
    return [*attribution.rows, *attribution.fixed]


def of(parts: Sequence[TracePart], row: Row) -> list[Row]:
    """The parts' rows that make up one row of the whole."""
    return [
        one
        for each in parts
        for one in everything(each.attribution)
        if (one.kind, one.keys) == (row.kind, row.keys)
    ]


def drawn_part(number: int, case: Case, host: str) -> TracePart:
    """One trace of a drawn machine."""
    info = TraceInfo(host, "6.1", "cpu", "", 1.0, True, {"query": number})
    about = assemble.Provenance(info, "replay", "simulated", by=("tag:trace",))
    ledger = model_cases.run(case).ledger
    stats = latency.CallStats.none(len(LABELS))
    stats.calls[:] = number + 1
    return TracePart(f"t{number}", assemble.attribution(ledger, LABELS, stats, about))


def nameless(whole: Attribution) -> Attribution:
    """Without what depends on the order of the parts: the parts, and the notes that name them."""
    return replace(whole, parts=(), model=replace(whole.model, notes=()))


@given(several())
def test_a_sum_is_what_its_parts_are_in_any_order(traces: list[TracePart]) -> None:
    whole = together(traces)
    reversed_order = together(traces[::-1])
    assert nameless(whole) == nameless(reversed_order)
    for domain in whole.domains:
        assert sum(domain.parts_nj.values()) == domain.measured_nj
    if whole.domains:
        for kind in PARTS:
            mine = sum(row.energy_nj for row in everything(whole) if row.kind == kind)
            assert mine == whole.main.parts_nj[kind]
    for row in everything(whole):
        same = of(whole.parts, row)
        assert row.calls == sum(one.calls for one in same)
        assert row.cpu_ns == sum(one.cpu_ns for one in same)
        for name, energy_nj in row.energy_by_domain_nj.items():
            assert energy_nj == sum(one.energy_by_domain_nj[name] for one in same)
        if not whole.domains:
            continue
        assert row.energy_nj == sum(one.energy_nj for one in same)
        low, high = row.energy_nj_ci95
        lows, highs = zip(*(one.energy_nj_ci95 for one in same), strict=True)
        slack = 8 + 1e-12 * sum(highs)  # whole nJ each, and floats that are as large as energies
        assert math.fsum(lows) <= low <= row.energy_nj + slack
        assert row.energy_nj - slack <= high <= math.fsum(highs)


def test_totals_add_up_in_each_trace_and_in_all(written: Callable[..., Path]) -> None:
    paths = written("a"), written("b", "db2"), written("c", "db3")
    whole = document(*paths, "--by", "tag:trace")
    assert [part["name"] for part in whole["traces"]] == ["a", "b", "c"]
    for totals in (whole["totals_j"], *(part["totals_j"] for part in whole["traces"])):
        assert sum(j for name, j in totals.items() if name != "measured") == totals["measured"]
    rows = [*whole["rows"], *whole["fixed"]]
    assert sum(row["energy_j"] for row in rows) == whole["totals_j"]["measured"] == 9
    for row in rows:
        for figure in ("energy_j", "cpu_ns"):
            assert sum(one[figure] for one in row["by_trace"].values()) == row[figure]
    servers = {row["server"] for row in rows if row["kind"] == "background"}
    assert servers == {"shop-db on db1", "shop-db on db2", "shop-db on db3"}
    text = render(together(parts(*paths)), width=140)
    assert "db1, db2" in text
    assert TRACE_ID[:8] in text
    header, *lines = run(*paths, "--format", "csv").output.splitlines()
    assert header.endswith(",traces")
    assert all(line.endswith(",3") for line in lines)
    with pytest.raises(ValueError, match="different policies"):
        even = attribute(Trace(paths[1]), idle="even")
        together([*parts(paths[0]), TracePart("b", even)])


def test_random_errors_add_in_squares_and_common_errors_linearly() -> None:
    noise = EnergyErrors(9e12, *[0.0] * 7)
    common = EnergyErrors(0.0, 3e6, *[0.0] * 6)
    for errors, times in ((noise, 2), (common, 4)):
        low, high = of_recordings([errors] * 4).ends(4e9)
        one = errors.ends(1e9)
        assert high - low == pytest.approx(times * (one[1] - one[0]), abs=8)


SHARED = "a and b cover the same time of db1: what it drew is in both totals"
DIFFER = "hosts differ: db1 (a); db2 (b) | grades differ: estimated (b); simulated (a)"


@pytest.mark.parametrize(
    ("host", "meta", "notes"),
    [
        ("db1", {"begin_ns": hand.BEGIN_NS + 1, "servers": (Server(1, "x", "mysql"),)}, SHARED),
        ("db1", {"realtime_offset_ns": 3_600 * 10**9}, ""),
        ("db2", {"energy": EnergyInfo("estimated", "estimated", "")}, DIFFER),
    ],
)
def test_what_traces_share_and_what_differs_is_noted(
    written: Callable[..., Path], host: str, meta: dict[str, Any], notes: str
) -> None:
    whole = document(written("a"), written("b", host, meta=meta))["model"]["notes"]
    expected = [note for note in whole if "cover the same time" in note or " differ: " in note]
    assert sorted(expected) == sorted(filter(None, notes.split(" | ")))


def test_without_energy_in_one_the_sum_is_unknown(written: Callable[..., Path]) -> None:
    none = written("b", "db2", meta={"energy": EnergyInfo(), "domains": ()}, energy=[])
    whole = document(written("a"), none, "--by", "tag:trace")
    (row,) = [row for row in whole["rows"] if row["tag:trace"] == TRACE_ID]
    assert (row["energy_j"], row["calls"]) == (None, 2)
    assert row["by_trace"]["a"]["energy_j"] > 0
    assert row["by_trace"]["b"]["energy_j"] is None
    assert whole["totals_j"]["measured"] is None
    assert whole["traces"][0]["totals_j"]["measured"] == 3
    assert "no energy in b: the sum of joules is not known" in whole["model"]["notes"]


@pytest.mark.parametrize("shared", ["package", "psys"])
def test_only_domains_of_all_traces_are_summed(written: Callable[..., Path], shared: str) -> None:
    def recorded(name: str, host: str, *domains: str) -> Path:
        readings = [
            hand.energy(t, raw * (1 + n), domain)
            for t, raw in ((0, 0), (20, 10**9), (40, 3 * 10**9))
            for n, domain in enumerate(domains)
        ]
        known = tuple(DomainInfo(0, domain, 1e-9) for domain in domains)
        return written(name, host, energy=readings, meta={"domains": known})

    a, b = recorded("a", "db1", "package", "psys"), recorded("b", "db2", shared)
    whole = document(a, b)
    other = "psys" if shared == "package" else "package"
    assert f"{other} was counted in a only: it is in no sum" in whole["model"]["notes"]
    assert whole["energy_source"]["domains"] == [shared]
    parts = [part["totals_j"]["measured"] for part in whole["traces"]]
    assert parts == ([3, 3] if shared == "package" else [6, 3])
    assert whole["totals_j"]["measured"] == sum(parts)
    assert sum(row["energy_j"] for row in (*whole["rows"], *whole["fixed"])) == sum(parts)


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
