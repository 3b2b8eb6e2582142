# SPDX-License-Identifier: Apache-2.0
"""Tags in CQL's custom payloads: entries with keys `qjoule.KEY` (native_protocol_v4.spec, 2.2)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from qjoule.tags.comments import PREFIX, believed
from qjoule.tags.definitions import Tags


@lru_cache(maxsize=4096)
def tags_in_payload(block: bytes) -> Tags:
    """Tags by key, from entries of a custom payload as sent, without their count.

    Of several entries with one key the last counts, as at the server. Entries without a value are
    left out.
    """
    try:
        return believed(_entries(block))
    except IndexError:
        return ()


def _entries(block: bytes) -> Iterable[tuple[str, str]]:
    """Raises IndexError if the block is cut off."""
    while block:
        name, block = _sized(block, 2)
        value, block = _sized(block, 4)
        if name and value is not None and name.startswith(PREFIX.encode()):
            key = name.decode("utf-8", "replace").removeprefix(PREFIX)
            yield key, value.decode("utf-8", "replace")


def _sized(block: bytes, width: int) -> tuple[bytes | None, bytes]:
    """A [string] or [bytes] with a length of `width` bytes (None: no value), and the rest."""
    size = int.from_bytes(block[:width], "big", signed=width > 2)
    end = width + max(size, 0)
    if end > len(block):
        raise IndexError
    return None if size < 0 else block[width:end], block[end:]
