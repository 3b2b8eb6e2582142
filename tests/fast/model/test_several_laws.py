# SPDX-License-Identifier: Apache-2.0
"""Laws of several traces as one: the sum equals its parts, in any order."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

import model_cases
from model_cases import Case, cases
from qjoule.model import assemble, latency
from qjoule.model.coefficients import IDLE_POLICIES, IdlePolicy
from qjoule.model.labels import GroupLabel, background, process
from qjoule.model.result import PARTS, Attribution, Row, TraceInfo, TracePart
from qjoule.model.together import together

LABELS = [GroupLabel("queries", (("tag:trace", f"t{g}"),), server="db") for g in range(3)]
LABELS += [background("db", "purge"), process("bash"), process("p")]
HOSTS = ("db1", "db2", "")


def part(number: int, case: Case, host: str) -> TracePart:
    """One trace of a drawn machine."""
    info = TraceInfo(host, "6.1", "cpu", "", 1.0, True, {"query": number})
    about = assemble.Provenance(info, "replay", "simulated", by=("tag:trace",))
    ledger = model_cases.run(case).ledger
    stats = latency.CallStats.none(len(LABELS))
    stats.calls[:] = number + 1
    return TracePart(f"t{number}", assemble.attribution(ledger, LABELS, stats, about))


@st.composite
def several(draw: st.DrawFn) -> list[TracePart]:
    """Two or three traces with the same policy."""
    drawn = draw(st.lists(cases(tidy=True), min_size=2, max_size=3))
    policy: IdlePolicy = draw(st.sampled_from(IDLE_POLICIES))
    return [
        part(n, dataclasses.replace(case, idle=policy), draw(st.sampled_from(HOSTS)))
        for n, case in enumerate(drawn)
    ]


@given(several())
def test_a_sum_is_what_its_parts_are(parts: list[TracePart]) -> None:
    whole = together(parts)
    for domain in whole.domains:
        assert sum(domain.parts_nj.values()) == domain.measured_nj
    if whole.domains:
        rows = everything(whole)
        assert sum(row.energy_nj for row in rows) == whole.main.measured_nj
        for kind in PARTS:
            mine = sum(row.energy_nj for row in rows if row.kind == kind)
            assert mine == whole.main.parts_nj[kind]
    for row in everything(whole):
        same = of(whole.parts, row)
        for field in ("calls", "cpu_ns") + ("energy_nj",) * bool(whole.domains):
            assert getattr(row, field) == sum(getattr(one, field) for one in same)
        for name, energy_nj in row.energy_by_domain_nj.items():
            assert energy_nj == sum(one.energy_by_domain_nj[name] for one in same)


@given(several())
def test_an_interval_holds_the_sum_and_is_no_wider_than_all_together(
    parts: list[TracePart],
) -> None:
    whole = together(parts)
    if not whole.domains:
        return
    for row in everything(whole):
        low, high = row.energy_nj_ci95
        lows, highs = zip(*(one.energy_nj_ci95 for one in of(whole.parts, row)), strict=True)
        slack = 8 + 1e-12 * sum(highs)  # whole nJ each, and floats that are as large as energies
        assert math.fsum(lows) <= low <= row.energy_nj + slack
        assert row.energy_nj - slack <= high <= math.fsum(highs)
        if len(lows) == 1:
            assert (low, high) == (lows[0], highs[0])


@given(several(), st.randoms(use_true_random=False))
def test_the_order_of_traces_does_not_matter(parts: list[TracePart], random: object) -> None:
    shuffled = list(parts)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = (nameless(together(found)) for found in (parts, shuffled))
    assert one == other


def nameless(whole: Attribution) -> Attribution:
    """Without what depends on the order of the parts: the parts, and the notes that name them."""
    return dataclasses.replace(whole, parts=(), model=dataclasses.replace(whole.model, notes=()))


def everything(found: Attribution) -> list[Row]:
    return [*found.rows, *found.fixed]


def of(parts: Sequence[TracePart], row: Row) -> list[Row]:
    """The parts' rows that make up one row of the whole."""
    return [
        one
        for each in parts
        for one in everything(each.attribution)
        if (one.kind, one.keys) == (row.kind, row.keys)
    ]
