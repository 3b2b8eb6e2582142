# SPDX-License-Identifier: Apache-2.0
"""Selects the tag keys that `g` offers for grouping, because applications choose the keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from qjoule.engine.live_groups import TAG
from qjoule.shapes.safe_text import sanitise
from qjoule.trace.arrow import pc
from qjoule.trace.parts import RowGroup

#: Number of keys offered, not counting one that the user gave by name.
MAX_KEYS = 4
#: Number of a trace's parts that are searched for keys.
MAX_PARTS = 256
#: Keys with another value for every traced request.
_IDS = ("trace", "span")


def offered(keys: Iterable[str]) -> list[str]:
    """The keys that fit into a title and a list of keys as they are, except ids."""
    return [key for key in keys if key not in _IDS and "," not in key and sanitise(key) == key]


class Keys:
    """The keys of tags so far, in order of appearance; each costs a ledger."""

    def __init__(self) -> None:
        self.offered: list[str] = []

    def meet(self, tags: Iterable[str]) -> None:
        """`tags`: their keys."""
        if len(self.offered) < MAX_KEYS:
            new = [key for key in offered(tags) if key not in self.offered]
            self.offered += new[: MAX_KEYS - len(self.offered)]


def groups_of_tags(queries: Sequence[RowGroup]) -> tuple[str, ...]:
    """`tag:KEY` of the first keys in a trace's `queries`."""
    found: dict[str, None] = {}
    for part in queries[:MAX_PARTS]:
        table = part.read(["tags"])
        for chunk in table["tags"].chunks if table is not None else ():
            found |= dict.fromkeys(offered(pc.unique(chunk.keys).to_pylist()))
        if len(found) >= MAX_KEYS:
            break
    return tuple(TAG + key for key in list(found)[:MAX_KEYS])
