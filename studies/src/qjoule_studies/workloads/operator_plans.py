# SPDX-License-Identifier: Apache-2.0
"""The operators of the workload `operators`: a statement each, and the settings that force it.

All statements return one row, so that what is measured is the operator and not the transfer of its
result. `{probe}`, `{build}` are the tables and `{below}` a key, all of them made by
`qjoule_studies.workloads.operators`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from qjoule_studies.workloads.plan_check import JOINS, Wanted

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
