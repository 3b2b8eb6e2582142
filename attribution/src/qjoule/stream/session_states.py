# SPDX-License-Identifier: Apache-2.0
"""What holds of a session from when on: codes of its user, its database, what it calls itself and
what its client says of all its queries.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from qjoule.contract import SessionEvent
from qjoule.trace.columns import Array, rows_of

UNKNOWN, SAME, FIRST = -1, -2, -3  #: codes: of no name, as it was before, as at the login

#: Codes of user, database, application and tags.
State = tuple[int, int, int, int]


@dataclass(slots=True)
class Session:
    user: int = UNKNOWN
    database: int = UNKNOWN
    application: int = UNKNOWN
    #: (t_ns, name), in order of time: an id may serve a later connection again.
    connections: list[tuple[int, str | None]] = field(default_factory=list)
    first_application: int = UNKNOWN  #: at its login
    tags: int = UNKNOWN  #: that its client gave it there
    #: (t_ns, event, what is new), in order of time: what came since.
    changes: list[tuple[int, int, State]] = field(default_factory=list)

    @property
    def state(self) -> State:
        """Before the changes."""
        return self.user, self.database, self.application, self.tags

    def states(self) -> tuple[list[int], list[State]]:
        """(times, what holds from each on); the first holds before all times."""
        held = [self.state]
        before = held[0]
        for _, event, news in self.changes:
            now = held[-1]
            if event == SessionEvent.KEPT:
                held.append(before)
                continue
            before = now
            user, database, application, tags = (
                old if new == SAME else new for new, old in zip(news, now, strict=True)
            )
            first = self.first_application
            held.append((user, database, first if application == FIRST else application, tags))
        return [change[0] for change in self.changes], held


def held_then(found: list[Session], known: Array, codes: Array, at_ns: Array) -> Array:
    """What held of each row's session, `found[code]`, at its time; `known`: before any change."""
    held: Array = known[codes]
    changing = [code for code, session in enumerate(found) if session.changes]
    for code, rows in rows_of(codes, changing):
        times, states = found[code].states()
        place = np.searchsorted(np.array(times, np.uint64), at_ns[rows], side="right")
        held[rows] = np.array(states, np.int64)[place]
    return held
