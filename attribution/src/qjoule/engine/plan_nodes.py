# SPDX-License-Identifier: Apache-2.0
"""Divides a statement's joules and waits over the nodes of its plan, by the nodes on its stacks.

A sample belongs to the innermost node on its stack, so what a node took excludes its children's.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise

from qjoule.engine.stack_waits import WaitSum
from qjoule.engine.stacks import PlanNode, RowStacks, Stack, sampling_nj


@dataclass(frozen=True)
class NodeEnergy:
    """Energy of a node without its children. `name`: None: outside of nodes, such as planning.
    `sampling_nj`: half the width of the 95 % interval from the number of samples. `depth`: number
    of known nodes above; a parallel worker's first node may have been sampled without them.
    """

    name: PlanNode | None
    depth: int
    energy_nj: int
    samples: int
    sampling_nj: float
    waits: WaitSum


def plan_nodes(row: RowStacks) -> list[NodeEnergy]:
    """Returns the nodes in the order of the plan. Their energies add up to the row's."""
    counts: Counter[PlanNode | None] = Counter()
    energies: Counter[PlanNode | None] = Counter()
    above: dict[PlanNode, Counter[PlanNode]] = {}
    waits: defaultdict[PlanNode | None, WaitSum] = defaultdict(WaitSum)

    def innermost(stack: Stack, weight: int) -> PlanNode | None:
        nodes = [frame for frame in stack if isinstance(frame, PlanNode)]
        for parent, node in pairwise(nodes):
            above.setdefault(node, Counter())[parent] += weight
        for node in nodes:
            energies[node] += 0
        return nodes[-1] if nodes else None

    for stack, energy_nj in row.energies_nj():
        node = innermost(stack, row.samples[stack])
        counts[node] += row.samples[stack]
        energies[node] += energy_nj
    for stack, wait_sum in row.waits.items():
        node = innermost(stack, 1)
        waits[node].add_all(wait_sum)
        energies[node] += 0
    parents = {node: callers.most_common(1)[0][0] for node, callers in above.items()}
    return [
        NodeEnergy(
            node,
            _depth(node, parents),
            energies[node],
            counts[node],
            sampling_nj(row, counts[node]),
            waits[node],
        )
        for node in sorted(energies, key=lambda node: (-1, "") if node is None else node.order)
    ]


def _depth(node: PlanNode | None, parents: dict[PlanNode, PlanNode]) -> int:
    """Parents may form a loop if plans of several shapes were mixed up; the loop is cut."""
    depth = 0
    while node in parents and depth < len(parents):
        node, depth = parents[node], depth + 1
    return depth
