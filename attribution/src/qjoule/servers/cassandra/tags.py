# SPDX-License-Identifier: Apache-2.0
"""Tags in CQL's custom payloads: entries with keys `qjoule.KEY` (native_protocol_v4.spec, 2.2)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from qjoule.tags.comments import PREFIX, believed
from qjoule.tags.definitions import Tags


@lru_cache(maxsize=4096)
def tags_in_payload(block: bytes) -> Tags:
    """Tags by key, of entries of a custom payload as they are sent, without their count.

    Of entries of one key the last one counts, as at the server; those without a value are left out.
    """
    try:
        return believed(_entries(block))
    except IndexError:
        return ()


def _entries(block: bytes) -> Iterable[tuple[str, str]]:
    """Raises IndexError for what is cut off."""
    while block:
        name, block = _sized(block, 2)
        value, block = _sized(block, 4)
        if name and value is not None and name.startswith(PREFIX.encode()):
            key = name.decode("utf-8", "replace").removeprefix(PREFIX)
            yield key, value.decode("utf-8", "replace")


def _sized(block: bytes, width: int) -> tuple[bytes | None, bytes]:
    """[string] or [bytes], whose length has so many bytes, None for no value; and what follows."""
    size = int.from_bytes(block[:width], "big", signed=width > 2)
    end = width + max(size, 0)
    if end > len(block):
        raise IndexError
    return None if size < 0 else block[width:end], block[end:]
