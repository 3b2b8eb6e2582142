# SPDX-License-Identifier: Apache-2.0
"""For how long what was told still stands: what a wrapper asks before it asks anything else."""

from __future__ import annotations

from collections.abc import Callable

from qjoule_drivers.context import innermost


class Standing:
    """What connections told under one of these stands, as long as tags and trace are the same and
    the time has not come to look for the recorder. Another one follows when all has to be told
    again.

    A call finds all it needs in here, for what a call costs is the memory that it touches.
    """

    __slots__ = ("frame", "until_ns")

    def __init__(self, frame: Callable[[], object], until_ns: int) -> None:
        self.frame = frame  #: what a query sent now carries
        self.until_ns = until_ns  #: when to look for a recorder, or whether it is still there

    def end(self) -> None:
        """Nothing stands any more, also where a thread still sets the time: each answer is a new
        object.
        """
        self.frame = object


NEVER = Standing(innermost, 0)
NEVER.end()
