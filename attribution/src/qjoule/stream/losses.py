# SPDX-License-Identifier: Apache-2.0
"""Loss as the tracer reports it: running sums per CPU and cause, from LOSS blocks."""

from __future__ import annotations

from qjoule.contract import TRACER_CPU, Loss
from qjoule.stream.blocks import Records
from qjoule.trace.vocabulary import CAUSES


class Losses:
    """Keeps the largest sum per CPU and cause, since records can arrive out of order."""

    def __init__(self) -> None:
        self._sums: dict[tuple[int, int], tuple[int, int]] = {}

    def add(self, records: Records) -> list[tuple[int, int, int]]:
        """Takes in records of known causes, see `known_causes`.

        Returns (t_ns, cpu, ns) for CPU time that was lost since the CPU's record before.
        """
        newly_lost = []
        for t_ns, count, lost_ns, cpu, cause in records.tolist():
            count_before, ns_before = self._sums.get((cpu, cause), (0, 0))
            self._sums[cpu, cause] = (max(count_before, count), max(ns_before, lost_ns))
            if lost_ns > ns_before and cpu != TRACER_CPU:
                newly_lost.append((t_ns, cpu, lost_ns - ns_before))
        return newly_lost

    @property
    def sums(self) -> dict[tuple[int, int], tuple[int, int]]:
        """The running sums (count, lost_ns) by CPU and cause."""
        return dict(self._sums)

    def counts(self) -> dict[str, int]:
        """Lost records by cause, in the contract's order. Only causes that occurred."""
        counts: dict[str, int] = {}
        for (_, cause), (count, _) in sorted(self._sums.items(), key=lambda one: one[0][1]):
            if count:
                counts[CAUSES[cause]] = counts.get(CAUSES[cause], 0) + count
        return counts

    @property
    def lost_ns(self) -> int:
        """CPU time whose segments were lost, summed over all CPUs."""
        return sum(lost_ns for _, lost_ns in self._sums.values())


def known_causes(records: Records) -> Records:
    """Mask of the LOSS records whose cause the contract defines."""
    mask: Records = records["cause"] < len(Loss)
    return mask
