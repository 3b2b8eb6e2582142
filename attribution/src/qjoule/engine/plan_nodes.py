# SPDX-License-Identifier: Apache-2.0
"""Divides a statement's joules over the nodes of its plan, by the nodes on its sampled stacks.

A sample belongs to the innermost node on its stack: what a node's children took is not in it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from qjoule.engine.stacks import PlanNode, RowStacks, sampling_nj


@dataclass(frozen=True)
class NodeEnergy:
    """What a node took itself. `name`: None: what no node executed, such as planning.
    `sampling_nj`: half the width of a 95 % interval, by how few samples there are. `depth`: of
    nodes above it that are known: a parallel worker's first node may have been seen without them.
    """

    name: PlanNode | None
    depth: int
    energy_nj: int
    samples: int
    sampling_nj: float


def plan_nodes(row: RowStacks) -> list[NodeEnergy]:
    """The nodes in the order of the plan. Their energies add up to the row's."""
    counts: Counter[PlanNode | None] = Counter()
    energies: Counter[PlanNode | None] = Counter()
    above: dict[PlanNode, Counter[PlanNode]] = {}
    for stack, energy_nj in row.energies_nj():
        nodes = [frame for frame in stack if isinstance(frame, PlanNode)]
        innermost = nodes[-1] if nodes else None
        counts[innermost] += row.samples[stack]
        energies[innermost] += energy_nj
        for parent, node in pairwise(nodes):
            above.setdefault(node, Counter())[parent] += row.samples[stack]
        for node in nodes:
            energies[node] += 0
    parents = {node: callers.most_common(1)[0][0] for node, callers in above.items()}
    return [
        NodeEnergy(
            node,
            _depth(node, parents),
            energies[node],
            counts[node],
            sampling_nj(row, counts[node]),
        )
        for node in sorted(energies, key=lambda node: (-1, "") if node is None else node.order)
    ]


def _depth(node: PlanNode | None, parents: dict[PlanNode, PlanNode]) -> int:
    """Plans of several shapes may be told apart badly: a loop of parents ends."""
    depth = 0
    while node in parents and depth < len(parents):
        node, depth = parents[node], depth + 1
    return depth
