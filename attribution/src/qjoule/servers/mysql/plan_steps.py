# SPDX-License-Identifier: Apache-2.0
"""Finds nodes of plans of MySQL and MariaDB, by the functions that execute them.

MariaDB's executor reads a table of a join in sub_select(), which calls itself for the next table
with each row (sql/sql_select.cc). Rows may be collected first: JOIN_CACHE::join_records() then
reads the next table (sql/sql_join_cache.cc). So tables are counted from a select's first table, in
EXPLAIN's order, but without those that the optimiser has read (`const`). Work on a row of the last
table, such as grouping, belongs to that table. Selects of one UNION cannot be distinguished:
st_select_lex_unit::exec() executes them all by one call in a loop, and the addresses of their JOINs
differ in each execution.

MySQL's executor is a tree of iterators (sql/iterators/row_iterator.h): Init() and Read() of one
call those of others. A hash join reads its build input, below a node that EXPLAIN calls Hash, in a
separate function. Other children of one kind below one iterator cannot be distinguished: their
callers' addresses differ, but a compiler may call one child from several places.
"""

from __future__ import annotations

import re
from functools import lru_cache

from qjoule.servers.decoding_types import PlanStep

_TABLE = PlanStep("table", counted=True)
_STEPS = {
    "sub_select": _TABLE,
    "sub_select_cache": _TABLE,
    "JOIN_CACHE::join_records": PlanStep(
        "table", counted=True, goes_on=("sub_select_cache(JOIN*, st_join_table*, bool)",)
    ),
    "AGGR_OP::end_send": PlanStep("temporary table"),  # reads the grouped rows
    "filesort": PlanStep("sort"),
    "JOIN::exec_inner": PlanStep("", begins=True),
    "Item_subselect::exec": PlanStep("subquery", begins=True),
    "mysql_handle_single_derived": PlanStep("derived table", begins=True),
    "st_select_lex_unit::exec": PlanStep("union", begins=True),
    "HashJoinIterator::BuildHashTable": PlanStep("Hash"),
}
#: Since MySQL 9.0 Init() and Read() call virtual functions of these names.
_ITERATOR = re.compile(
    r"(?:\w+::|\(anonymous namespace\)::)*(\w+)Iterator(?:<.*>)?::(?:Do)?(?:Init|Read)\(\)"
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z]*")
_TIMES_ANOTHER = "Timing"  #: of EXPLAIN ANALYZE


@lru_cache(1 << 12)
def plan_step(function: str) -> PlanStep | None:
    """`function`: demangled, with its parameters."""
    iterator = _ITERATOR.fullmatch(function)
    if iterator is not None and iterator[1] != _TIMES_ANOTHER:
        node = " ".join(_WORD.findall(iterator[1])).capitalize()
        caller = function.replace("::Do", "::")
        return PlanStep(node, goes_on=() if caller == function else (caller,)) if node else None
    if "RowIterator" in function:  # called by an iterator for its own work, such as filesort()
        return None
    return _STEPS.get(function.partition("(")[0])
