# SPDX-License-Identifier: Apache-2.0
"""Takes in the blocks of a stream, whoever reads it: a recording, a capture or a live view.

What all of them do is done here: the announcement completes what is known of the trace, loss is
summed (running sums per CPU and cause, from LOSS blocks), and the watch sees tasks and sessions.
The rest is a method for each kind of block.
"""

from __future__ import annotations

import numpy as np

from qjoule.contract import TRACER_CPU, Block, Loss
from qjoule.stream.announced import Announced
from qjoule.stream.blocks import Frame, Records, valid_tasks
from qjoule.stream.context import StreamContext
from qjoule.trace.columns import Array
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


class BlockReader:
    """Calls a method for each block; subclasses override those of the kinds that they use.

    `announced`: what was read of the stream before; None: it is read from its begin.
    """

    def __init__(self, context: StreamContext, announced: Announced | None = None) -> None:
        self._watch = context.watch
        self._announced = announced or Announced(context.meta)
        if self._watch is not None and announced is None:
            self._watch.learnt.append(self._announced.follow)
        self._losses = Losses()
        self._invalid = 0  #: records that contradict themselves or the contract

    def add(self, frame: Frame) -> None:
        """Takes in one block."""
        if self._announced.add(frame):
            self._on_announced(frame)
            return
        match frame.kind:
            case Block.TEXT:
                self._on_text(frame)
            case Block.SESSION:
                if self._on_session(frame) and self._watch is not None:
                    self._watch.sessions(frame.records)
            case Block.TASK:
                self._on_tasks(frame.records)
                if self._watch is not None:
                    self._watch.tasks(frame.records[valid_tasks(frame.records)])
            case Block.LOSS:
                self._on_loss(frame.records)
            case Block.FLUSH:
                self._on_flush(frame.t_ns)
            case Block.END:
                self._on_end(int(frame.records["t_ns"][0]))
            case _:
                self._on_records(frame)

    def _on_announced(self, frame: Frame) -> None:
        """A HELLO, CPU or DOMAIN block has been taken in."""

    def _on_text(self, frame: Frame) -> None:
        """A statement, or tags that a client sent."""

    def _on_session(self, frame: Frame) -> bool:
        """An event of a session. Returns whether it is valid."""
        del frame
        return True

    def _on_tasks(self, records: Array) -> None:
        """Events of processes and threads (`contract.TASK`)."""

    def _on_loss(self, records: Array) -> list[tuple[int, int, int]]:
        """Running sums of loss; returns what is new, as `Losses.add`."""
        known = known_causes(records)
        self._invalid += int(np.count_nonzero(~known))
        return self._losses.add(records[known])

    def _on_flush(self, t_ns: int) -> None:
        """All that happened before has been sent."""

    def _on_end(self, t_ns: int) -> None:
        """The stream's last block."""

    def _on_records(self, frame: Frame) -> None:
        """Any other kind."""
