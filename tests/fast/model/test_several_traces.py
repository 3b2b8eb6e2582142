# SPDX-License-Identifier: Apache-2.0
"""Several traces as one (`qjoule attribute A B`): the sum equals its parts; comparisons of runs."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import attribute_trace as hand
import model_cases
from cli_runner import invoke
from model_cases import Case, cases
from qjoule.commands.attribute import command
from qjoule.errors import UsageError
from qjoule.live.triggers import LEAST, expected, left_interval
from qjoule.model import assemble, latency
from qjoule.model.arrays import F64
from qjoule.model.coefficients import IDLE_POLICIES, IdlePolicy
from qjoule.model.combine_results import combine_results
from qjoule.model.labels import GroupLabel, background, process
from qjoule.model.provenance import Provenance
from qjoule.model.result import PARTS, Attribution, Row, TraceInfo, TracePart
from qjoule.model.run_ratios import log_ratios
from qjoule.trace.meta import DomainInfo, EnergyInfo, Server

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"


def queries(*tagged: str) -> list[dict[str, Any]]:
    """The handwritten trace's queries; those with these fingerprints belong to one request."""
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


run = partial(invoke, command)


def document(*arguments: object) -> dict[str, Any]:
    result = run(*arguments, "--format", "json")
    assert result.exit_code == 0, result.exception or result.output
    parsed: dict[str, Any] = json.loads(result.output, parse_float=Decimal)
    return parsed


@st.composite
def several(draw: st.DrawFn) -> list[TracePart]:
    """Two or three traces with the same policy."""
    drawn = draw(st.lists(cases(tidy=True), min_size=2, max_size=3))
    policy: IdlePolicy = draw(st.sampled_from(IDLE_POLICIES))
    return [
        drawn_part(n, replace(case, idle=policy), draw(st.sampled_from(HOSTS)))
        for n, case in enumerate(drawn)
    ]


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
        part_row
        for part in parts
        for part_row in everything(part.attribution)
        if (part_row.kind, part_row.keys) == (row.kind, row.keys)
    ]


def drawn_part(number: int, case: Case, host: str) -> TracePart:
    """One trace of a drawn machine."""
    info = TraceInfo(host, "6.1", "cpu", "", 1.0, True, {"query": number})
    about = Provenance(info, "replay", "simulated", by=("tag:trace",))
    ledger = model_cases.run(case).ledger
    stats = latency.CallStats.none(len(LABELS))
    stats.calls[:] = number + 1
    return TracePart(f"t{number}", assemble.attribution(ledger, LABELS, stats, about))


def nameless(combined: Attribution) -> Attribution:
    """Without what depends on the order of the parts: the parts, and the notes that name them."""
    return replace(combined, parts=(), model=replace(combined.model, notes=()))


@given(several())
def test_a_sum_is_what_its_parts_are_in_any_order(traces: list[TracePart]) -> None:
    combined = combine_results(traces)
    reversed_order = combine_results(traces[::-1])
    assert nameless(combined) == nameless(reversed_order)
    for domain in combined.domains:
        assert sum(domain.parts_nj.values()) == domain.measured_nj
    if combined.domains:
        for kind in PARTS:
            mine = sum(row.energy_nj for row in everything(combined) if row.kind == kind)
            assert mine == combined.main.parts_nj[kind]
    for row in everything(combined):
        same = of(combined.parts, row)
        assert row.calls == sum(part_row.calls for part_row in same)
        assert row.cpu_ns == sum(part_row.cpu_ns for part_row in same)
        for name, energy_nj in row.energy_by_domain_nj.items():
            assert energy_nj == sum(part_row.energy_by_domain_nj[name] for part_row in same)
        if not combined.domains:
            continue
        assert row.energy_nj == sum(part_row.energy_nj for part_row in same)
        low, high = row.energy_nj_ci95
        lows, highs = zip(*(part_row.energy_nj_ci95 for part_row in same), strict=True)
        slack = 8 + 1e-12 * sum(highs)  # whole nJ each, and floats that are as large as energies
        assert math.fsum(lows) <= low <= row.energy_nj + slack
        assert row.energy_nj - slack <= high <= math.fsum(highs)


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
    all_notes = document(written("a"), written("b", host, meta=meta))["model"]["notes"]
    expected = [note for note in all_notes if "cover the same time" in note or " differ: " in note]
    assert sorted(expected) == sorted(filter(None, notes.split(" | ")))


def test_only_domains_of_all_traces_are_summed(written: Callable[..., Path]) -> None:
    def recorded(name: str, host: str, *domains: str) -> Path:
        readings = [
            hand.energy(t, raw * (1 + n), domain)
            for t, raw in ((0, 0), (20, 10**9), (40, 3 * 10**9))
            for n, domain in enumerate(domains)
        ]
        infos = tuple(DomainInfo(0, domain, 1e-9) for domain in domains)
        return written(name, host, energy=readings, meta={"domains": infos})

    a, b = recorded("a", "db1", "package", "psys"), recorded("b", "db2", "psys")
    printed = document(a, b)
    assert "package was counted in a only: it is in no sum" in printed["model"]["notes"]
    assert printed["energy_source"]["domains"] == ["psys"]
    assert [part["totals_j"]["measured"] for part in printed["traces"]] == [6, 3]
    assert printed["totals_j"]["measured"] == 9
    assert sum(row["energy_j"] for row in (*printed["rows"], *printed["fixed"])) == 9


def test_numbers_of_one_trace_are_no_keys_of_several(written: Callable[..., Path]) -> None:
    a, b = written("a"), written("b", "db2")
    for options in (("--by", "session"), ("--where", "session=7")):
        error = run(a, b, *options).exception
        assert isinstance(error, UsageError)
        assert "session is a number of one trace" in str(error)
        assert run(a, *options).exit_code == 0


# ---- comparisons of runs, and of a figure with its own past --------------------------------------

positive = st.floats(1e-9, 1e9)


def _figures(seed: int, runs: int) -> F64:
    rng = np.random.default_rng(seed)
    figures: F64 = np.exp(rng.normal(rng.normal(0, 3), 0.1, (3, runs)))
    return figures


@given(st.integers(0, 2**32), st.integers(2, 6), st.integers(2, 6), positive)
def test_a_factor_that_both_sides_have_cancels(seed: int, n: int, m: int, factor: float) -> None:
    a, b = _figures(seed, n), _figures(seed + 1, m)
    plain, scaled = log_ratios(a, b), log_ratios(a * factor, b * factor)
    np.testing.assert_allclose(scaled.interval(), plain.interval(), rtol=1e-6)


@given(st.integers(0, 2**32), st.integers(2, 6), st.integers(2, 6))
def test_the_other_way_round_is_the_inverse(seed: int, n: int, m: int) -> None:
    a, b = _figures(seed, n), _figures(seed + 1, m)
    (low, high), (low2, high2) = log_ratios(a, b).interval(), log_ratios(b, a).interval()
    np.testing.assert_allclose(low * high2, 1.0)
    np.testing.assert_allclose(high * low2, 1.0)


def test_a_figures_past_holds_the_next_one_in_nineteen_of_twenty_cases() -> None:
    rng = np.random.default_rng(5)
    held = 0
    for _ in range(2000):
        *past, now = np.exp(rng.normal(3, 0.4, LEAST + 1)).tolist()
        low, high = expected(past) or (np.inf, 0.0)
        held += low <= now <= high
    assert held / 2000 == pytest.approx(0.95, abs=0.015)


def test_a_figure_leaves_its_past_only_if_the_intervals_do_not_meet() -> None:
    past = [1.0, 1.1, 0.9, 1.05, 0.95, 1.0, 1.02, 0.98]
    low, high = expected(past) or (0.0, 0.0)
    assert left_interval((high * 1.01, high * 2), past) == (low, high)
    assert left_interval((low / 2, low * 0.99), past) == (low, high)
    assert left_interval((high * 0.99, high * 2), past) is None
    assert left_interval((low / 2, high * 2), past) is None
    assert left_interval((100.0, 200.0), past[: LEAST - 1]) is None
    assert expected([*past[: LEAST - 1], 0.0, float("inf")]) is None
