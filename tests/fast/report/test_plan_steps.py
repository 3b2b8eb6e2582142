# SPDX-License-Identifier: Apache-2.0
"""Nodes of plans by the functions on a stack: of MariaDB, MySQL and Redis."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qjoule.engine.stacks import CUT, Frames, PlanNode
from qjoule.servers.decoding import plan_step

READ = "sub_select(JOIN*, st_join_table*, bool)"
CACHE = "sub_select_cache(JOIN*, st_join_table*, bool)"
BUFFER = "JOIN_CACHE::join_records(bool)"
SELECT = "JOIN::exec_inner()"
SORT = "filesort(THD*, TABLE*, Filesort*, Filesort_tracker*, JOIN*, unsigned long long)"
SUBQUERY = "Item_subselect::exec()"
OTHER = "rr_sequential(READ_RECORD*)"
LOOP, HASH = "NestedLoopIterator", "HashJoinIterator"


def nodes(*functions: str, whole: bool = True) -> list[str]:
    """The nodes that a stack shows, the outermost first."""
    return [name for name in stack(*functions, whole=whole) if isinstance(name, PlanNode)]


def stack(*functions: str, whole: bool = True) -> tuple[str, ...]:
    frames = Frames(lambda _module, offset: functions[offset])
    for number in range(len(functions)):
        frames.add(number + 1, number, 1, number)
    return frames.stack(len(functions), whole=whole)


@pytest.mark.parametrize(
    ("functions", "wanted"),
    [
        ((SELECT, READ, OTHER), ["table #1"]),
        ((SELECT, READ, "evaluate", READ, OTHER), ["table #1", "table #1 > table #2"]),
        ((SELECT, READ, "evaluate", CACHE, BUFFER), ["table #1", "table #1 > table #2"]),
        ((SELECT, READ, "create_sort_index", SORT), ["table #1", "table #1 > sort"]),
        (
            (SELECT, READ, "evaluate", SUBQUERY, SELECT, READ),
            ["table #1", "table #1 > subquery", "table #1 > subquery > table #1"],
        ),
        ((f"{LOOP}::Read()", f"{LOOP}::Read()"), ["Nested loop", "Nested loop > Nested loop"]),
        ((f"{LOOP}::Read()", f"{LOOP}::DoRead()"), ["Nested loop"]),
        ((f"{LOOP}::DoRead()", f"{LOOP}::DoRead()"), ["Nested loop", "Nested loop > Nested loop"]),
        (
            ("SortingIterator::DoInit()", "filesort(THD*, Filesort*, RowIterator*)"),
            ["Sorting"],
        ),
        (("RefIterator<false>::Read()",), ["Ref"]),
        (("(anonymous namespace)::EQRefIterator::DoRead()",), ["Eq ref"]),
        (
            (f"{HASH}::DoInit()", f"{HASH}::BuildHashTable()", "TableScanIterator::DoRead()"),
            ["Hash join", "Hash join > Hash", "Hash join > Hash > Table scan"],
        ),
        (
            (
                f"{HASH}::DoRead()",
                f"{HASH}::ReadRowFromProbeIterator()",
                "RefIterator<true>::Read()",
            ),
            ["Hash join", "Hash join > Ref"],
        ),
        (("TimingIterator<TableScanIterator>::Read()",), []),
        (("processCommand", "call", "evalShaCommand", "getCommand"), ["EVALSHA", "EVALSHA > GET"]),
        (("evalRoCommand",), ["EVAL_RO"]),
        (("call", "evalGenericCommand", "hsetCommand"), ["script", "script > HSET"]),
        (("exec_replication_command", "mysql_execute_command(THD*, bool)", "getKeyCommand"), []),
        ((OTHER, "", "+0x10", "someIterator::Read()"), []),
    ],
)
def test_nodes_of_a_stack(functions: tuple[str, ...], wanted: list[str]) -> None:
    assert nodes(*functions) == wanted


def test_without_its_callers_a_function_shows_no_node() -> None:
    functions = (READ, "evaluate", READ)
    assert stack(*functions, whole=False) == (CUT, *functions)
    assert len(nodes(*functions)) == 2


def test_a_strangers_functions_make_few_and_short_nodes() -> None:
    deep = nodes(*[f"{'A' * 150}Iterator::DoRead()"] * 2000)
    assert len(deep) == 24 and len(deep[-1]) < 24 * 40


def test_nodes_are_in_the_order_of_the_plan() -> None:
    join = nodes(*(READ, "evaluate") * 11)
    kinds = [PlanNode("Sort #12"), PlanNode("Sort #3")]
    assert all(isinstance(node, PlanNode) for node in join)
    ordered = sorted([*reversed(join)], key=lambda node: getattr(node, "order"))  # noqa: B009
    assert ordered == join
    assert [node.number for node in sorted(kinds, key=lambda node: node.order)] == [3, 12]


@given(
    st.lists(
        st.sampled_from([READ, BUFFER, CACHE, SORT, SUBQUERY, SELECT, OTHER, "x"]), max_size=20
    )
)
def test_functions_stay_on_the_stack_in_their_order(functions: list[str]) -> None:
    names = stack(*functions)
    assert [name for name in names if not isinstance(name, PlanNode)] == functions
    paths = [name for name in names if isinstance(name, PlanNode)]
    assert len(set(paths)) == len(paths), "each node is on a stack once"
    assert all(later.startswith(f"{path} > ") for path, later in pairwise(paths))


@given(st.text(max_size=300))
def test_any_text_may_be_a_functions_name(name: str) -> None:
    step = plan_step(name)
    assert step is None or step.node or step.begins
