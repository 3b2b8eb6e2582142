# SPDX-License-Identifier: Apache-2.0
"""Plans of PostgreSQL compared with what an operator must be."""

from __future__ import annotations

from typing import Any

import pytest

from qjoule.errors import QjouleError
from qjoule.studies.workloads.plan_check import (
    Wanted,
    check,
    describe,
    join_order,
    launched,
    spilled_kb,
)

HASH_JOIN = Wanted("Hash Join", never=frozenset({"Merge Join", "Nested Loop"}))


def node(kind: str, *children: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"Node Type": kind, "Plans": list(children), **more}


def gather(workers: int, *children: dict[str, Any], **more: Any) -> dict[str, Any]:
    return node("Gather", *children, **{"Workers Planned": workers, **more})


SCAN = node("Seq Scan", **{"Relation Name": "t"})
JOIN = node("Hash Join", SCAN, node("Hash", SCAN))


def test_serial_and_parallel_plans() -> None:
    check(node("Aggregate", JOIN), HASH_JOIN, 0)
    check(node("Aggregate", gather(2, JOIN)), HASH_JOIN, 2)


@pytest.mark.parametrize(
    ("plan", "workers"),
    [
        (node("Aggregate", SCAN), 0),  # no join
        (node("Nested Loop", JOIN, SCAN), 0),  # another join too
        (JOIN, 2),  # not parallel
        (gather(2, JOIN), 0),  # parallel
        (gather(1, JOIN), 2),  # fewer workers
        (node("Hash Join", gather(2, SCAN), SCAN), 2),  # the join itself is not parallel
        (node("Append", gather(2, JOIN), gather(1, JOIN)), 2),  # two numbers of workers
    ],
)
def test_other_plans_are_refused(plan: dict[str, Any], workers: int) -> None:
    with pytest.raises(QjouleError, match="did not plan a Hash Join") as refused:
        check(plan, HASH_JOIN, workers)
    assert describe(plan) in str(refused.value)


def test_strategy_of_an_aggregation() -> None:
    hashed = Wanted("Aggregate", "Hashed")
    plain = node("Aggregate", node("Aggregate", SCAN, Strategy="Hashed"), Strategy="Plain")
    check(plain, hashed, 0)
    with pytest.raises(QjouleError, match=r"Aggregate \(hashed\)"):
        check(node("Aggregate", plain, Strategy="Sorted"), hashed, 0)


def test_what_a_plan_did() -> None:
    assert describe(gather(2, JOIN)) == "Gather[2] > Hash Join > (Seq Scan, Hash > Seq Scan)"

    plan = gather(3, JOIN, **{"Workers Launched": 1, "Temp Written Blocks": 4})
    assert launched(plan) == (3, 1)
    assert spilled_kb(plan) == 32
    assert launched(JOIN) == (0, 0)

    a, b, c = (node("Seq Scan", **{"Relation Name": name}) for name in "abc")
    plan = node("Sort", node("Nested Loop", c, node("Hash Join", a, node("Hash", b))))
    assert join_order(plan) == [frozenset("ab"), frozenset("abc")]
