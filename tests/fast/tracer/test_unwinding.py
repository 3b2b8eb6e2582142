# SPDX-License-Identifier: Apache-2.0
"""Stacks are followed to the thread's entry by the tables of the files that are mapped."""

from __future__ import annotations

import platform
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from qjoule.servers.symbols import Symbols
from tracer_parts.unwinding import Node, Waiting, built, follow, waiting

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="stacks are followed on x86-64 only"
)
FAR = 10_000  #: calls: more than are in the pages that are read


@pytest.mark.parametrize("depth", [0, 1, 100])
def test_every_caller_is_found(depth: int) -> None:
    with waiting(built() / "unwound", str(depth)) as process:
        stack = follow(process.sample(), *process.tables())
    assert stack.whole
    assert stack.names[0] == "_start"
    assert stack.names[-depth - 3 :] == ["main", *["deeper"] * (depth + 1), "here"]


def test_a_signals_frame_is_passed() -> None:
    with waiting(built() / "unwound", "3", "signal") as process:
        stack = follow(process.sample(), *process.tables())
    assert stack.whole
    assert stack.names[0] == "_start"
    assert stack.names[-2:] == ["on_signal", "here"]
    assert stack.names.count("deeper") == 4


def test_a_recursion_beyond_what_is_read_is_cut_and_says_so() -> None:
    with waiting(built() / "unwound", str(FAR)) as process:
        stack = follow(process.sample(), *process.tables())
    assert not stack.whole
    assert 500 < len(stack.names) <= 1024
    assert set(stack.names) == {"deeper", "here"}


def test_a_stripped_file_gives_addresses_and_no_names(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    subprocess.run(["strip", "-s", "-o", str(bare), str(built() / "unwound")], check=True)
    with waiting(bare, "2") as process:
        stack = follow(process.sample(), *process.tables())
    assert stack.whole
    begins = _offset_of(built() / "unwound", "deeper")
    assert stack.names[-4:-1] == [f"bare+{begins:#x}"] * 3, "where the function begins"
    assert all(name.startswith("bare+0x") for name in stack.names[-5:])


def test_a_debug_file_of_the_build_id_gives_the_names(tmp_path: Path) -> None:
    with_symbols, bare = tmp_path / "whole", tmp_path / "bare"
    shutil.copyfile(built() / "unwound", with_symbols)
    subprocess.run(["strip", "-s", "-o", str(bare), str(with_symbols)], check=True)
    bare.chmod(0o755)
    with waiting(bare, "0") as process:
        _, modules = process.tables()
    own = next(module_ for module_ in modules if module_.path == str(bare))
    offset = _offset_of(with_symbols, "deeper")
    place = tmp_path / own.build_id[:2] / f"{own.build_id[2:]}.debug"
    place.parent.mkdir()
    module = str(bare), own.build_id
    assert Symbols(lambda _: module, tmp_path).name(1, offset) == f"bare+{offset:#x}"
    shutil.copyfile(with_symbols, place)
    assert Symbols(lambda _: module, tmp_path).name(1, offset) == "deeper"


def test_a_file_that_was_replaced_gives_no_names(tmp_path: Path) -> None:
    program = tmp_path / "program"
    shutil.copy(built() / "unwound", program)
    with waiting(program, "1") as process:
        sample, (tables, modules) = process.sample(), process.tables()
        program.unlink()
        source = tmp_path / "other.c"
        source.write_text("int main(void) { return 0; }")
        subprocess.run(["gcc", str(source), "-o", str(program)], check=True)
        stack = follow(sample, tables, modules)
    assert stack.whole, "the file that is mapped was read"
    assert all(name.startswith("program+0x") for name in stack.names[-4:])


def test_names_are_one_line_of_printable_text(tmp_path: Path) -> None:
    program, evil = tmp_path / "program", "\x1b[31m<script>alert(1)</script>\n;x"
    renamed = f"deeper={evil}"
    subprocess.run(
        ["objcopy", "--redefine-sym", renamed, str(built() / "unwound"), str(program)], check=True
    )
    with waiting(program, "0") as process:
        stack = follow(process.sample(), *process.tables())
    assert stack.whole
    assert stack.names[-2] == "\ufffd[31m<script>alert(1)</script> ;x"


def test_a_stack_whose_tables_are_too_long_is_cut() -> None:
    """A stranger's file must not take the tracer's time: ten functions have 140 KB of tables."""
    with waiting(built() / "unwound", "0", "wide") as process:
        stack = follow(process.sample(), *process.tables())
    assert not stack.whole
    assert stack.names[-1] == "here"
    assert [name for name in stack.names[::-1] if name != "here"] == [
        f"wide{number}" for number in range(1, len(stack.names))
    ]
    assert 8 < len(stack.names) < 12


@pytest.mark.parametrize("seed", range(2))
def test_damaged_tables_are_survived(seed: int) -> None:
    """Under sanitizers: what is read outside of the tables, or the stack, ends the run."""
    with waiting(built() / "unwound", "20") as process:
        stack = follow(process.sample(), *process.tables(), mutations=2000, seed=seed)
    assert stack.whole
    assert stack.mutated_frames > 2000


def test_a_stack_of_another_process_is_not_followed() -> None:
    with waiting(built() / "unwound", "1") as first, waiting(built() / "unwound", "1") as second:
        stack = follow(first.sample(), *second.tables())
    assert (stack.names, stack.whole) == ([], False)


def _plan(process: Waiting) -> tuple[list[Node], list[int]]:
    """The nodes that `unwound.c` has, and the functions that all of its scans call, at the places
    of `ExecScan()` and of `SeqNext()`."""
    first, join, scan, all_scans, next_row = (
        process.address(built() / "unwound", name)
        for name in ("nodes", "join", "scan", "scan_rows", "next_row")
    )
    at = [first + 32 * number for number in range(5)]
    nodes = [
        Node(at[0], 7, at[1], at[4], join, 0, 0, 92),
        Node(at[1], 7, at[2], at[3], join, 0, 1, 92),
        *(Node(at[number], 7, 0, 0, scan, 0, number, 72) for number in (2, 3, 4)),
    ]
    return nodes, [all_scans, 0, 0, 0, 0, next_row]


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (4, 3, 2, 1, 0), (1, 3, 0, 4, 2)])
def test_nodes_of_a_plan_stand_before_the_functions_that_execute_them(
    order: tuple[int, ...],
) -> None:
    """Two joins are separate nodes; neighbours with addresses on the stack are not included."""
    with waiting(built() / "unwound", "0", "nodes") as process:
        nodes, shared = _plan(process)
        sample = process.sample([nodes[number] for number in order], shared)
        stack = follow(sample, *process.tables())
    assert stack.whole
    executed = stack.names[stack.names.index("main") + 1 :]
    assert executed == ["92 #0", "join", "92 #1", "join", "72 #2", "scan_rows", "next_row", "here"]


def test_a_scan_is_found_by_where_its_rows_go() -> None:
    """The scan's function is not on the stack, and the one that finds rows has no address of it."""
    with waiting(built() / "unwound", "0", "nodes") as process:
        nodes, shared = _plan(process)
        nodes = [replace(node, row_slot=node.address + 24) for node in nodes]
        sample = process.sample(nodes, [0, *shared[1:]])
        names = follow(sample, *process.tables()).names
    executed = names[names.index("main") + 1 :]
    assert executed == ["92 #0", "join", "92 #1", "join", "scan_rows", "72 #2", "next_row", "here"]


def test_what_only_looks_like_a_node_is_none() -> None:
    """A client's string may look so: a node of another statement, or executed by no function."""
    with waiting(built() / "unwound", "0", "nodes") as process:
        nodes, _ = _plan(process)
        forged = [replace(node, function=node.function + 1) for node in nodes]
        assert all(
            "#" not in name for name in follow(process.sample(forged), *process.tables()).names
        )
        other = [nodes[0], replace(nodes[1], state=8)]
        names = follow(process.sample(other), *process.tables()).names
    assert [name for name in names if "#" in name] == ["92 #0"]


@pytest.mark.parametrize("count", [0, 31, 33, 2**32 - 1])
def test_a_damaged_list_of_nodes_is_survived(count: int) -> None:
    with waiting(built() / "unwound", "0", "nodes") as process:
        nodes, shared = _plan(process)
        stack = follow(process.sample(nodes * 6, shared, count), *process.tables())
    assert stack.whole


def _offset_of(program: Path, name: str) -> int:
    listed = subprocess.run(["nm", str(program)], check=True, stdout=subprocess.PIPE, text=True)
    line = next(
        symbol_line
        for symbol_line in listed.stdout.splitlines()
        if symbol_line.endswith(f" {name}")
    )
    return int(line.split()[0], 16)
