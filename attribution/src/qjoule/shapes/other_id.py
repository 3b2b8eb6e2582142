# SPDX-License-Identifier: Apache-2.0
"""The id by which another tool knows a statement."""

from __future__ import annotations

from typing import NamedTuple


class OtherId(NamedTuple):
    """An id, or the reason why there is none: never a guess."""

    name: str  #: what users of that tool call it
    id: str | None
    of: str  #: the tool, or the server and its version, that has this id
    why: str = ""  #: without an id: the reason
