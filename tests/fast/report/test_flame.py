# SPDX-License-Identifier: Apache-2.0
"""Joules by stack: parts add up to the table's to the nanojoule, whatever was sampled, and no name
of a stranger's file can do more than be read.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import attribute_trace as hand
from qjoule.cli import cli
from qjoule.engine.attribute import AttributionRequest, attribute
from qjoule.engine.flame import Flame, flame
from qjoule.engine.plan_nodes import plan_nodes
from qjoule.engine.stacks import (
    CUT,
    KERNEL,
    NO_SAMPLE,
    PlanNode,
    RowStacks,
    Stack,
    functions,
)
from qjoule.model.result import Row
from qjoule.report.flame_page import flame_page, tree
from qjoule.reporters.flame_text import collapsed, nodes, table
from qjoule.trace.reader import Trace
from stacked_trace import SAMPLES, sample, write_stacked_trace

NAMES = {(1, 100): "main", (1, 200): "read", (1, 300): "write", (2, 7): "deep;<b>"}


def name(module: int, offset: int) -> str:
    return NAMES.get((module, offset), f"{module}+{offset:#x}")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stacked_trace(tmp_path_factory.mktemp("flame") / "trace")


def read(trace: Path, *by: str, **more: Any) -> Flame:
    return flame(Trace(trace), AttributionRequest(by or ("fingerprint",), **more), name)


def energy_nj(text: str) -> int:
    return sum(int(line.rpartition(" ")[2]) for line in text.splitlines())


@pytest.mark.parametrize("by", [("fingerprint",), ("query",), ("database", "user"), ("session",)])
@pytest.mark.parametrize("idle", ["separate", "even", "proportional"])
def test_stacks_add_up_to_the_tables_rows(trace: Path, by: tuple[str, ...], idle: Any) -> None:
    read_flame = read(trace, *by, idle=idle)
    wanted = attribute(Trace(trace), by, idle)
    assert [row_stacks.row for row_stacks in read_flame.rows] == [*wanted.rows, *wanted.fixed]
    for row_stacks in read_flame.rows:
        assert sum(part for _, part in row_stacks.energies_nj()) == row_stacks.row.energy_nj
    assert energy_nj(collapsed(read_flame.rows)) == wanted.main.measured_nj == 3 * 10**9


def test_a_statements_joules_stand_on_its_own_samples(trace: Path) -> None:
    by_fingerprint = {
        row_stacks.row.keys.get("fingerprint"): row_stacks for row_stacks in read(trace).rows
    }
    assert by_fingerprint["aaaa"].samples == {
        ("main", "read", "deep;<b>"): 2,
        ("main", "write", KERNEL): 1,
        ("main", "read"): 1,
    }
    assert by_fingerprint["bbbb"].samples == {(CUT, "main", "read"): 1, (CUT,): 1}
    purge = next(
        row_stacks for row_stacks in read(trace).rows if row_stacks.row.keys.get("role") == "purge"
    )
    assert purge.samples == {("main", "write"): 1}


def test_what_has_no_sample_says_so(trace: Path) -> None:
    idle = next(row_stacks for row_stacks in read(trace).rows if row_stacks.row.kind == "idle")
    assert list(idle.energies_nj()) == [((NO_SAMPLE,), idle.row.energy_nj)]


def test_a_trace_without_frames_still_adds_up(tmp_path: Path) -> None:
    path = hand.write(tmp_path / "trace", samples=SAMPLES)
    assert energy_nj(collapsed(read(path).rows)) == 3 * 10**9


def test_frames_that_call_themselves_end(tmp_path: Path) -> None:
    loop = [{"frame": 13, "caller": 13, "module": 1, "offset": 1}]
    path = hand.write(tmp_path / "trace", samples=[sample(1, 13, 1)], frames=loop)
    assert energy_nj(collapsed(read(path).rows)) == 3 * 10**9


@given(st.integers(-(10**12), 10**15), st.lists(st.integers(1, 10**6), min_size=1, max_size=50))
def test_whole_parts_are_in_proportion(total: int, counts: list[int]) -> None:
    stacks: Counter[Stack] = Counter({(f"{at:02}",): count for at, count in enumerate(counts)})
    parts = [part for _, part in RowStacks(row(total), stacks).energies_nj()]
    assert sum(parts) == total
    for part, count in zip(parts, counts, strict=True):
        assert abs(part - total * count / sum(counts)) < 1 + abs(total) * 1e-12


def row(energy_nj: int) -> Row:
    ends = (0.9 * energy_nj, 1.1 * energy_nj)
    return Row({"fingerprint": "f"}, "select", "s", "queries", 1, energy_nj, ends, 1.0, 1)


@pytest.mark.parametrize(("share", "samples"), [(0.5, 40), (0.1, 50), (0.02, 200), (0.9, 1000)])
def test_intervals_of_sampling_cover_the_true_share(share: float, samples: int) -> None:
    """In all experiments, weighted by their probability."""
    covered = 0.0
    for hits in range(1, samples):
        stacks: Counter[Stack] = Counter({("f",): hits, ("g",): samples - hits})
        estimate = {
            function.name: function for function in functions([RowStacks(row(10**9), stacks)])
        }["f"]
        if abs(estimate.total_nj - share * 1e9) <= estimate.sampling_nj:
            covered += math.comb(samples, hits) * share**hits * (1 - share) ** (samples - hits)
    assert 0.93 <= covered <= 0.995


def test_a_functions_errors_are_told_apart() -> None:
    stacks: Counter[Stack] = Counter({("main", "main", "f"): 30, ("main",): 10})
    main, f = functions([RowStacks(row(4 * 10**9), stacks)])
    assert (main.name, main.total_nj, main.self_nj, main.samples) == ("main", 4e9, 1e9, 40)
    assert (f.total_nj, f.self_nj) == (3e9, 3e9)
    assert f.model_nj == pytest.approx(0.1 * 3e9)
    assert f.sampling_nj > main.sampling_nj > 0


def of_plan(counts: dict[tuple[str, ...], int], energy_nj: int = 10**9) -> RowStacks:
    """Names with a number are nodes."""
    return RowStacks(
        row(energy_nj),
        Counter(
            {
                tuple(PlanNode(frame) if "#" in frame else frame for frame in stack): count
                for stack, count in counts.items()
            }
        ),
    )


@given(
    st.integers(-(10**12), 10**15),
    st.dictionaries(
        st.lists(st.sampled_from(["main", "f", "Sort #0", "Join #1", "Join #2"]), max_size=6).map(
            tuple
        ),
        st.integers(1, 10**6),
        max_size=20,
    ),
)
def test_nodes_of_a_plan_add_up_to_their_statement(
    total: int, counts: dict[tuple[str, ...], int]
) -> None:
    row_stacks = of_plan(counts, total)
    listed = plan_nodes(row_stacks)
    assert sum(node.energy_nj for node in listed) == total
    assert sum(node.samples for node in listed) == row_stacks.count
    assert len({node.name for node in listed}) == len(listed)


def test_a_worker_has_its_leaders_node() -> None:
    """The worker's first node is below the node that was above it in the leader."""
    leader = ("main", "Gather #0", "ExecGather", "Hash Join #1", "f", "Hash Join #2", "g")
    plan = plan_nodes(of_plan({leader: 1, leader[3:5]: 6, leader[3:]: 2, ("main",): 1}))
    listed = [(node.name, node.depth, node.samples) for node in plan]
    assert listed == [
        (None, 0, 1),
        ("Gather #0", 0, 0),
        ("Hash Join #1", 1, 6),
        ("Hash Join #2", 2, 3),
    ]


def test_the_nodes_of_each_statement_as_a_table(trace: Path) -> None:
    assert nodes(read(trace)) == "no statement has nodes of a plan\n"
    row_stacks = of_plan({("main", "Sort #0"): 1, ("main", "Sort #0", "f", "Seq Scan #1"): 3})
    text = nodes(replace(read(trace), rows=(row_stacks,)))
    lines = text.splitlines()
    assert lines[2] == "select: 1.00 ± 0.10 J by the model"
    assert [line.split()[0] for line in lines[3:]] == ["0.2500", "0.7500"]
    assert [line.rpartition("  ")[2] for line in lines[3:]] == ["Sort #0", "Seq Scan #1"]


def test_lines_are_what_other_tools_read(trace: Path) -> None:
    lines = collapsed(read(trace).rows).splitlines()
    assert any(line.startswith("queries;select a;main;read;deep,<b> ") for line in lines)
    assert lines == sorted(lines)
    assert all(line.rpartition(" ")[2].isdigit() for line in lines)


def test_the_page_holds_every_name_as_text(trace: Path) -> None:
    text = flame_page(read(trace), "<title>")
    assert "<b>" not in text.partition('id="data">')[2].partition("</script>")[0]
    assert "deep;\\u003cb\\u003e" in text
    assert "&lt;title&gt;" in text


def test_the_pages_tree_adds_up_and_is_not_too_deep(trace: Path) -> None:
    read_flame = read(trace)
    deep = RowStacks(row(10**9), Counter({tuple(f"f{n}" for n in range(1000)): 1}))
    deep_flame = Flame(read_flame.result, (*read_flame.rows, deep), 1, 1)
    root = tree(deep_flame)
    assert root["nj"] == 4 * 10**9
    levels, depth = [root], 0
    while levels:
        for node in levels:
            assert node["nj"] == sum(child["nj"] for child in node.get("children", ())) or (
                "children" not in node
            )
        levels, depth = [child for node in levels for child in node.get("children", ())], depth + 1
    assert 200 < depth < 220
    flame_page(deep_flame, "deep")


def run(*arguments: str | Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli, ["flame", *map(str, arguments)])
    return result.exit_code, result.stdout, f"{result.stderr}{result.exception or ''}"


def test_the_command_in_every_format(trace: Path, tmp_path: Path) -> None:
    code, text, messages = run(trace)
    assert (code, energy_nj(text)) == (0, 3 * 10**9)
    assert "8 samples, 75.0% of them to their thread's entry" in messages
    assert "simulated, idle separate, loss none" in messages
    assert "serverd+0x64" in text  # no such file is here
    code, text, _ = run(trace, "--shape", "aa")
    attributed_rows = attribute(Trace(trace)).rows
    assert energy_nj(text) == next(
        r.energy_nj for r in attributed_rows if r.keys["fingerprint"] == "aaaa"
    )
    assert "± samples" in run(trace, "--format", "table", "--top", "2")[1]
    page = tmp_path / "page.html"
    assert run(trace, "--format", "html", "-o", page)[0] == 0
    assert "qj.showIcicle" in page.read_text()


def test_the_command_says_what_is_missing(trace: Path, tmp_path: Path) -> None:
    without = hand.write(tmp_path / "trace")
    assert "record it with --stacks" in run(without)[2]
    assert "no statement" in run(trace, "--shape", "ffff")[2]
    assert "--by" in run(trace, "--shape", "aaaa", "--by", "user")[2]


def test_a_table_shows_so_many_functions(trace: Path) -> None:
    assert table(read(trace), 2).splitlines()[-1].endswith("more functions: --top")
