# SPDX-License-Identifier: Apache-2.0
"""Blocks that wait until they are split: the first in memory, all others in a file."""

from __future__ import annotations

import pickle
import tempfile
from dataclasses import fields
from typing import IO, Any

from qjoule.model.arrays import Entries, WindowBatch

#: A block takes up to some 70 MB, see `qjoule.model.cells_of_time`.
IN_MEMORY = 2


def _bytes(block: WindowBatch) -> int:
    return sum(getattr(block.entries, one.name).nbytes for one in fields(Entries))


class HeldBlocks:
    """Blocks by number. Those beyond `IN_MEMORY` are in a temporary file without a name, which ends
    with the process however that ends."""

    def __init__(self) -> None:
        self._blocks: list[WindowBatch] = []
        self._file: IO[bytes] | None = None
        self._places: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._blocks) + len(self._places)

    def __sizeof__(self) -> int:
        """Bytes that a copy would move: a scheduler then brings the work to the blocks."""
        held = sum(_bytes(block) for block in self._blocks)
        return held + sum(size for _, size in self._places)

    def add(self, block: WindowBatch) -> None:
        """Adds the next block. Raises `OSError` if there is no room for it."""
        if len(self._blocks) < IN_MEMORY:
            self._blocks.append(block)
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="qjoule-blocks-")  # noqa: SIM115 (as long as this)
        data = pickle.dumps(block, pickle.HIGHEST_PROTOCOL)
        place = self._file.seek(0, 2)
        self._file.write(data)
        self._places.append((place, len(data)))

    def __getitem__(self, number: int) -> WindowBatch:
        if number < len(self._blocks):
            return self._blocks[number]
        place, size = self._places[number - len(self._blocks)]
        if self._file is None:
            raise IndexError(number)
        self._file.seek(place)
        block: WindowBatch = pickle.loads(self._file.read(size))
        return block

    def __getstate__(self) -> dict[str, Any]:
        """All blocks, for another process."""
        return {"blocks": [self[number] for number in range(len(self))]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]
        for block in state["blocks"]:
            self.add(block)
