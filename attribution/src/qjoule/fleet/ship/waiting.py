# SPDX-License-Identifier: Apache-2.0
"""Remembers what waits, so that parts that the store removes meanwhile are counted as lost."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from qjoule.trace.durable import write_whole

_MOST = 100_000
_MAX_BYTES = 32 << 20


class Waiting:
    """One destination's; a file in the store. Where that is read-only, only this process knows."""

    def __init__(self, store: Path, destination: str) -> None:
        digest = hashlib.sha256(destination.encode()).hexdigest()[:16]
        self._file = store / f".ship-{digest}.json"
        self._paths: Sequence[str] = self._read()

    def vanished(self, here: Collection[str]) -> list[str]:
        """What waited at the last pass and is not in the store any more."""
        return [path for path in self._paths if path not in here]

    def keep(self, paths: Sequence[str]) -> None:
        if list(paths) == list(self._paths):
            return
        self._paths = list(paths[-_MOST:])
        with suppress(OSError):
            write_whole(self._file, json.dumps(self._paths).encode(), durable=False)

    def _read(self) -> Sequence[str]:
        with suppress(OSError, ValueError, RecursionError):
            if self._file.stat().st_size <= _MAX_BYTES:
                found = json.loads(self._file.read_bytes())
                if isinstance(found, list) and all(isinstance(one, str) for one in found):
                    return found
        return []
