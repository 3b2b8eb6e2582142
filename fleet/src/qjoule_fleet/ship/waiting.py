# SPDX-License-Identifier: Apache-2.0
"""Remembers what waits, so that parts that the store removes meanwhile are counted as lost."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from qjoule.api.documents import write_whole

_MOST = 100_000
_MAX_BYTES = 32 << 20


class Waiting:
    """Of one store and destination; a file in `directory`, without which only this process knows.

    A shipper may not write to the store, which is the agent's.
    """

    def __init__(self, directory: Path | None, store: Path, destination: str) -> None:
        digest = hashlib.sha256(f"{store}\n{destination}".encode()).hexdigest()[:16]
        self._file = None if directory is None else directory / f"waiting-{digest}.json"
        self._paths: Sequence[str] = self._read()

    def vanished(self, here: Collection[str]) -> list[str]:
        """What waited at the last pass and is not in the store any more."""
        return [path for path in self._paths if path not in here]

    def keep(self, paths: Sequence[str]) -> None:
        if list(paths) == list(self._paths):
            return
        self._paths = list(paths[-_MOST:])
        if self._file is None:
            return
        with suppress(OSError):
            write_whole(self._file, json.dumps(self._paths).encode(), durable=False)

    def _read(self) -> Sequence[str]:
        with suppress(OSError, ValueError, RecursionError):
            if self._file is not None and self._file.stat().st_size <= _MAX_BYTES:
                found = json.loads(self._file.read_bytes())
                if isinstance(found, list) and all(isinstance(one, str) for one in found):
                    return found
        return []
