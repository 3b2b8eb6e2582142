# SPDX-License-Identifier: Apache-2.0
"""How often servers may make the agent start again: each start leaves some seconds untraced.

A start is worth it for a server whose programs only another start can load. But anybody can run
servers of ever new kinds. So each owner's starts have a budget of their own, and each start makes
the owner's next one wait twice as long. It is handed over from start to start (`agent.handover`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

#: (first, longest) seconds between two starts of one owner.
TRUSTED_S, STRANGERS_S = (60.0, 3600.0), (600.0, 86_400.0)
#: Seconds between two starts of all strangers together: there may be many of them.
ALL_STRANGERS_S = 1800.0
MAX_OWNERS = 256


class Owner(Protocol):
    """Whose server it is, by `str()`: `qjoule.servers.owner.Owner`. Can be hashed."""

    @property
    def trust(self) -> int:
        """The most trusted have the lowest."""

    @property
    def trusted(self) -> bool:
        """Whether it is the host's root, or one of its services."""


@dataclass(frozen=True)
class Starts:
    """The starts that one owner's servers have caused."""

    owner: str
    count: int
    last_s: float  #: Unix time
    trusted: bool = False

    def valid(self) -> bool:
        """Whether a file may have said so."""
        return self.count > 0 and math.isfinite(self.last_s) and self.last_s >= 0

    @property
    def pause_s(self) -> float:
        """How long the next one has to wait."""
        first_s, longest_s = TRUSTED_S if self.trusted else STRANGERS_S
        return float(min(first_s * 2 ** min(self.count - 1, 30), longest_s))

    @property
    def forgotten_s(self) -> float:
        """After which quiet time they are forgotten."""
        _, longest_s = TRUSTED_S if self.trusted else STRANGERS_S
        return max(2 * self.pause_s, longest_s)


class Restarts:
    """The budget of all owners."""

    def __init__(self, starts: Iterable[Starts] = ()) -> None:
        self._of = {one.owner: one for one in starts}

    @property
    def starts(self) -> tuple[Starts, ...]:
        latest = sorted(self._of.values(), key=lambda one: one.last_s)
        return tuple(latest[-MAX_OWNERS:])

    def wait_s(self, owner: Owner, now_s: float) -> float:
        """How long a server of this owner has to wait for a start; 0: not at all."""
        before = self._of.get(str(owner))
        waits = [] if before is None else [_left_s(before.last_s, before.pause_s, now_s)]
        if not owner.trusted:
            waits += [
                _left_s(one.last_s, ALL_STRANGERS_S, now_s)
                for one in self._of.values()
                if not one.trusted
            ]
        return max(waits, default=0.0)

    def note(self, owner: Owner, now_s: float) -> None:
        """A server of this owner causes a start."""
        before = self._of.get(str(owner))
        count = 1
        if before is not None and now_s - before.last_s < before.forgotten_s:
            count += before.count
        self._of[str(owner)] = Starts(str(owner), count, now_s, owner.trusted)


def _left_s(last_s: float, pause_s: float, now_s: float) -> float:
    # If the clock was set back, the last one was at most now.
    return max(0.0, min(last_s, now_s) + pause_s - now_s)
