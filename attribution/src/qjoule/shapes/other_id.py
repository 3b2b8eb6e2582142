# SPDX-License-Identifier: Apache-2.0
"""The id by which another tool knows a statement."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class OtherId(NamedTuple):
    """An id, or the reason why there is none: never a guess."""

    name: str  #: what users of that tool call it
    id: str | None
    of: str  #: the tool, or the server and its version, that has this id
    why: str = ""  #: without an id: the reason


def certain(ids: Iterable[OtherId]) -> tuple[OtherId, ...]:
    """Each id once. The reason why one was missing goes once the same tool has an id."""
    distinct = tuple(dict.fromkeys(ids))
    known = {(one.name, one.of) for one in distinct if one.id is not None}
    return tuple(one for one in distinct if one.id is not None or (one.name, one.of) not in known)
