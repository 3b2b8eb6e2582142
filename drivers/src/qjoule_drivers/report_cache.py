# SPDX-License-Identifier: Apache-2.0
"""For how long earlier reports remain valid. A wrapper checks this first."""

from __future__ import annotations

from collections.abc import Callable

from qjoule_drivers.context import innermost


class ReportCache:
    """Reports made under one `ReportCache` hold while tags and trace stay the same and the recorder
    need not be checked. It is replaced when everything has to be reported again.

    All that a call needs is in this one object, because the cost of a call is the memory it
    touches.
    """

    __slots__ = ("frame", "until_ns")

    def __init__(self, frame: Callable[[], object], until_ns: int) -> None:
        self.frame = frame  #: the tags and trace of a query sent now
        self.until_ns = until_ns  #: when to look for a recorder, or whether it is still there

    def end(self) -> None:
        """Invalidates it, even if another thread is setting the time: each state is a new
        object.
        """
        self.frame = object


NEVER = ReportCache(innermost, 0)
NEVER.end()
