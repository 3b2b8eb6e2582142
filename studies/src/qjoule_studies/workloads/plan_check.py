# SPDX-License-Identifier: Apache-2.0
"""Whether PostgreSQL's planner chose what a study wants to measure: pure functions on plans.

A plan is what `EXPLAIN (FORMAT JSON)` gives: nested dictionaries, `Plans` being a node's children
(PostgreSQL manual, section 14.1 and EXPLAIN).

The operators of the workload `operators` are a statement each, and the settings that force it. All
statements return one row, so that what is measured is the operator and not the transfer of its
result. `{probe}`, `{build}` are the tables and `{below}` a key, all of them made by
`qjoule_studies.workloads.operators`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from qjoule.api import QjouleError

Plan = Mapping[str, Any]

JOINS = frozenset({"Hash Join", "Merge Join", "Nested Loop"})
_GATHERS = frozenset({"Gather", "Gather Merge"})


@dataclass(frozen=True)
class Wanted:
    """The node that an operator is, and the nodes that would be another operator.

    Attributes:
        node: its `Node Type`.
        strategy: of an Aggregate: `Hashed` or `Sorted`; empty for others.
        below: a node type that must be below it; empty if any may.
        never: node types that must not be anywhere in the plan.
    """

    node: str
    strategy: str = ""
    below: str = ""
    never: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.node} ({self.strategy.lower()})" if self.strategy else self.node


def nodes(plan: Plan) -> Iterator[Plan]:
    """A node and all below it, from the top."""
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def check(plan: Plan, wanted: Wanted, workers: int) -> None:
    """Raises QjouleError with the actual plan if it is not `wanted` with so many workers.

    With 0 workers nothing of the plan may be parallel. With more, the wanted node must be below a
    Gather or Gather Merge that has that many workers planned, and none may have another number.
    """
    planned = {node["Workers Planned"] for node in nodes(plan) if node["Node Type"] in _GATHERS}
    if planned - {workers}:
        raise _other(plan, wanted, workers)
    if any(_is_another(node, wanted) for node in nodes(plan)):
        raise _other(plan, wanted, workers)
    places = (
        [plan] if workers == 0 else [node for node in nodes(plan) if node["Node Type"] in _GATHERS]
    )
    if not any(_is(node, wanted) for place in places for node in nodes(place)):
        raise _other(plan, wanted, workers)


def launched(plan: Plan) -> tuple[int, int]:
    """Workers planned and launched, by `EXPLAIN (ANALYZE)`, of the node with most planned."""
    workers = [
        (node["Workers Planned"], node.get("Workers Launched", 0))
        for node in nodes(plan)
        if node["Node Type"] in _GATHERS
    ]
    return max(workers, default=(0, 0))


def spilled_kb(plan: Plan) -> int:
    """Temporary files of sorts, hash joins and hash aggregations, by `EXPLAIN (ANALYZE, BUFFERS)`.

    The top node's blocks include those of all below it; a block has 8 kB.
    """
    return int(plan.get("Temp Written Blocks", 0)) * 8


def join_order(plan: Plan) -> list[frozenset[str]]:
    """The relations under each join, smallest first."""
    joined = []
    for node in nodes(plan):
        if node["Node Type"] in JOINS:
            names = frozenset(n["Relation Name"] for n in nodes(node) if "Relation Name" in n)
            joined.append(names)
    return sorted(joined, key=len)


def describe(plan: Plan, depth: int = 12) -> str:
    """A plan on one line: `Aggregate > Gather[2] > Hash Join > (Seq Scan, Hash > Seq Scan)`."""
    kind = str(plan["Node Type"])
    if "Workers Planned" in plan:
        kind += f"[{plan['Workers Planned']}]"
    if plan.get("Strategy", "Plain") != "Plain":
        kind += f" ({str(plan['Strategy']).lower()})"
    children = [describe(child, depth - 1) for child in plan.get("Plans", ())] if depth else []
    if not children:
        return kind
    below = children[0] if len(children) == 1 else f"({', '.join(children)})"
    return f"{kind} > {below}"


def _is(node: Plan, wanted: Wanted) -> bool:
    return (
        node["Node Type"] == wanted.node
        and (not wanted.strategy or node.get("Strategy") == wanted.strategy)
        and (
            not wanted.below
            or any(
                child["Node Type"] == wanted.below
                for top in node.get("Plans", ())
                for child in nodes(top)
            )
        )
    )


def _is_another(node: Plan, wanted: Wanted) -> bool:
    if node["Node Type"] in wanted.never:
        return True
    strategy = node.get("Strategy", "Plain")
    return bool(
        wanted.strategy
        and node["Node Type"] == wanted.node
        and strategy not in {"Plain", wanted.strategy}
    )


def _other(plan: Plan, wanted: Wanted, workers: int) -> QjouleError:
    return QjouleError(
        f"PostgreSQL did not plan a {wanted} with {workers} workers but {describe(plan)}: "
        "see rows, work_mem, settings and the server's max_parallel_workers"
    )


#: Makes the planner use the requested number of workers, not the number that it finds worthwhile.
#: (The tables' storage parameter parallel_workers says as many as max_parallel_workers_per_gather.)
PARALLEL = {
    "parallel_setup_cost": "0",
    "parallel_tuple_cost": "0",
    "min_parallel_table_scan_size": "0",
    "min_parallel_index_scan_size": "0",
}
_OFF = "off"


@dataclass(frozen=True)
class Operator:
    """A statement, the plan that it must have, and the planner's settings that lead there."""

    statement: str
    wanted: Wanted
    settings: Mapping[str, str] = field(default_factory=dict)


def _without(*names: str) -> dict[str, str]:
    return {f"enable_{name}": _OFF for name in names}


def _only_join(node: str, *below: str) -> Wanted:
    return Wanted(node, below=below[0] if below else "", never=JOINS - {node})


_JOIN = (
    "SELECT count(p.payload), count(b.payload) "
    "FROM {probe} p JOIN {build} b ON p.build_id = b.id WHERE p.k <= {below}"
)
_GROUP = (
    "SELECT count(*), max(total) FROM "
    "(SELECT g, count(*), sum(v) AS total FROM {probe} WHERE k <= {below} GROUP BY g OFFSET 0) q"
)
_INDEX_SCANS = frozenset({"Index Scan", "Index Only Scan", "Bitmap Heap Scan"})

OPERATORS: Mapping[str, Operator] = {
    "sequential scan": Operator(
        "SELECT count(payload) FROM {probe} WHERE k <= {below}",
        Wanted("Seq Scan", never=_INDEX_SCANS),
        _without("indexscan", "indexonlyscan", "bitmapscan"),
    ),
    "index lookup": Operator(
        # k is in no order of the rows: each entry of the index is another page of the table.
        "SELECT count(payload) FROM {probe} WHERE k <= {below}",
        Wanted("Index Scan", never=frozenset({"Seq Scan", "Bitmap Heap Scan"})),
        _without("seqscan", "indexonlyscan", "bitmapscan"),
    ),
    "sort": Operator(
        "SELECT count(payload) FROM "
        "(SELECT k, payload FROM {probe} WHERE k <= {below} ORDER BY k OFFSET 0) q",
        Wanted("Sort", below="Seq Scan", never=_INDEX_SCANS),
        _without("indexscan", "indexonlyscan", "bitmapscan"),
    ),
    "hash join": Operator(
        _JOIN,
        _only_join("Hash Join"),
        _without("mergejoin", "nestloop", "indexscan", "indexonlyscan", "bitmapscan"),
    ),
    "merge join": Operator(
        # Both sides are sorted: a sort merge join.
        _JOIN,
        _only_join("Merge Join", "Sort"),
        _without("hashjoin", "nestloop", "indexscan", "indexonlyscan", "bitmapscan"),
    ),
    "nested loops": Operator(
        # For each row of the probe relation an entry of the build relation's index.
        _JOIN,
        _only_join("Nested Loop", "Index Scan"),
        {
            **_without("hashjoin", "mergejoin", "material", "memoize"),
            **_without("indexonlyscan", "bitmapscan"),
        },
    ),
    "hash aggregation": Operator(
        _GROUP,
        Wanted("Aggregate", "Hashed", never=_INDEX_SCANS | {"Sort"}),
        _without("sort", "indexscan", "indexonlyscan", "bitmapscan"),
    ),
    "sorted aggregation": Operator(
        _GROUP,
        Wanted("Aggregate", "Sorted", below="Sort", never=_INDEX_SCANS),
        _without("hashagg", "indexscan", "indexonlyscan", "bitmapscan"),
    ),
}
