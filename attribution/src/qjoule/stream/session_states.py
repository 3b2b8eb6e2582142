# SPDX-License-Identifier: Apache-2.0
"""A session's state over time: codes of its user, database and application name, and of the tags
that its client set for all of its queries.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from qjoule.contract import SessionEvent
from qjoule.trace.columns import Array, rows_of

UNKNOWN, SAME, FIRST = -1, -2, -3  #: codes: unknown, unchanged, as at the login

#: Codes of user, database, application and tags.
State = tuple[int, int, int, int]


@dataclass(slots=True)
class Session:
    user: int = UNKNOWN
    database: int = UNKNOWN
    application: int = UNKNOWN
    #: (t_ns, name), in order of time: a later connection may reuse a session's id.
    connections: list[tuple[int, str | None]] = field(default_factory=list)
    first_application: int = UNKNOWN  #: at its login
    tags: int = UNKNOWN  #: that its client set at the login
    #: (t_ns, event, new state), in order of time: later changes.
    changes: list[tuple[int, int, State]] = field(default_factory=list)

    @property
    def state(self) -> State:
        """The state before the changes."""
        return self.user, self.database, self.application, self.tags

    def states(self) -> tuple[list[int], list[State]]:
        """(times, the state from each time on). The first state has no time: it holds before all
        others.
        """
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
    """The state of each row's session, `found[code]`, at its time; `known`: before any change."""
    held: Array = known[codes]
    changing = [code for code, session in enumerate(found) if session.changes]
    for code, rows in rows_of(codes, changing):
        times, states = found[code].states()
        place = np.searchsorted(np.array(times, np.uint64), at_ns[rows], side="right")
        held[rows] = np.array(states, np.int64)[place]
    return held
