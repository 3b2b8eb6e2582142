# SPDX-License-Identifier: Apache-2.0
"""Passes bytes from the engine to a process that listens, through memory that both share.

The engine never waits for that process, whatever scrapers do to it, and reads nothing that it may
have written. A version number that is odd while the engine writes tells a reader to look again (a
sequence lock).
"""

from __future__ import annotations

import mmap
import struct
import time

#: Pages of it are in use only once they are written.
BYTES = 16 << 20
_HEAD = struct.Struct("=QQ")  #: version, size
_TRIES, _PAUSE_S = 100, 0.0005


class SharedBytes:
    """Made before the fork; the engine `put`s, the other process `get`s."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, BYTES)
        self._shown = 0  #: the engine's own, because the other process could write the shared one

    def put(self, content: bytes) -> bool:
        """Replaces the content. False if it does not fit: then the last one stays."""
        if len(content) > BYTES - _HEAD.size:
            return False
        self._shown += 2
        _HEAD.pack_into(self._memory, 0, self._shown - 1, len(content))
        self._memory[_HEAD.size : _HEAD.size + len(content)] = content
        _HEAD.pack_into(self._memory, 0, self._shown, len(content))
        return True

    @property
    def version(self) -> int:
        """Another number means another content; 0: nothing yet."""
        found: int = _HEAD.unpack_from(self._memory)[0]
        return found

    def get(self) -> bytes | None:
        """The content; None if there is nothing."""
        for _ in range(_TRIES):
            before, size = _HEAD.unpack_from(self._memory)
            if before % 2 == 0:
                if not before:
                    return None
                content = self._memory[_HEAD.size : _HEAD.size + size]
                if self.version == before:
                    return content
            time.sleep(_PAUSE_S)
        return None
