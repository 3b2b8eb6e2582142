# SPDX-License-Identifier: Apache-2.0
"""Takes in the blocks of a stream, whoever reads it: a recording, a capture or a live view.

What all of them do is done here: the announcement completes what is known of the trace, loss is
summed, and the watch sees tasks and sessions. The rest is a method for each kind of block.
"""

from __future__ import annotations

import numpy as np

from qjoule.contract import Block
from qjoule.stream.announced import Announced
from qjoule.stream.blocks import Frame, valid_tasks
from qjoule.stream.context import StreamContext
from qjoule.stream.losses import Losses, known_causes
from qjoule.trace.columns import Array


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
