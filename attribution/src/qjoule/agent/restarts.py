# SPDX-License-Identifier: Apache-2.0
"""Decides why and how often the agent restarts: each start leaves some seconds untraced.

What tracing costs may be a reason: see `agent.degradation`. Servers whose programs only another
start can load are another one. But anybody can run servers of ever new kinds. So each owner has a
budget of starts, and each start doubles the wait before the owner's next one. The budget is handed
over from start to start (`agent.handover`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from qjoule.agent.degradation import LEVELS, PROBES_LEFT_OUT
from qjoule.model.result import Attribution, ServerChange
from qjoule.snapshots import Snapshot
from qjoule.trace.meta import HIDDEN, UNTRACED

#: A server that stays untraced for so long is worth another start. A stranger's must have stayed
#: for longer: others may start and end servers all the time.
PATIENCE_S, STRANGERS_PATIENCE_S = 20.0, 900.0
#: Without a store, nobody knows of earlier starts: a run lasts so long before the next.
UNKNOWN_S = 600.0
#: (first, longest) seconds between two starts of one owner.
TRUSTED_S, STRANGERS_S = (60.0, 3600.0), (600.0, 86_400.0)
#: Seconds between two starts of all strangers together: there may be many of them.
ALL_STRANGERS_S = 1800.0
MAX_OWNERS = 256


class Owner(Protocol):
    """Whose server it is, by `str()`: `qjoule.servers.processes.Owner`. Can be hashed."""

    @property
    def trust(self) -> int:
        """The most trusted have the lowest."""

    @property
    def trusted(self) -> bool:
        """True for the host's root and its services."""


@dataclass(frozen=True)
class Starts:
    """The starts that one owner's servers have caused."""

    owner: str
    count: int
    last_s: float  #: Unix time
    trusted: bool = False

    def valid(self) -> bool:
        """Whether all numbers are possible: they may come from a damaged file."""
        return self.count > 0 and math.isfinite(self.last_s) and self.last_s >= 0

    @property
    def pause_s(self) -> float:
        """How long after `last_s` the owner's next start is due."""
        first_s, longest_s = TRUSTED_S if self.trusted else STRANGERS_S
        return float(min(first_s * 2 ** min(self.count - 1, 30), longest_s))

    @property
    def forgotten_s(self) -> float:
        """The starts are forgotten after this long without another one."""
        _, longest_s = TRUSTED_S if self.trusted else STRANGERS_S
        return max(2 * self.pause_s, longest_s)


class Restarts:
    """The budget of all owners, and for which servers the agent has started again already.

    `tried`: processes that need no further start. `hidden`: owners and labels of servers with
    sessions that sockets do not show.
    """

    def __init__(
        self,
        starts: Iterable[Starts] = (),
        tried: Iterable[int] = (),
        hidden: Iterable[tuple[str, str]] = (),
    ) -> None:
        self._by_owner = {start.owner: start for start in starts}
        self.tried, self.hidden = list(tried), list(hidden)

    @property
    def starts(self) -> tuple[Starts, ...]:
        latest = sorted(self._by_owner.values(), key=lambda start: start.last_s)
        return tuple(latest[-MAX_OWNERS:])

    def wait_s(self, owner: Owner, now_s: float) -> float:
        """Seconds that a server of this owner has to wait for a start; 0: none."""
        before = self._by_owner.get(str(owner))
        waits = [] if before is None else [_left_s(before.last_s, before.pause_s, now_s)]
        if not owner.trusted:
            waits += [
                _left_s(start.last_s, ALL_STRANGERS_S, now_s)
                for start in self._by_owner.values()
                if not start.trusted
            ]
        return max(waits, default=0.0)

    def note(self, owner: Owner, now_s: float) -> None:
        """Records that a server of this owner causes a start."""
        before = self._by_owner.get(str(owner))
        count = 1
        if before is not None and now_s - before.last_s < before.forgotten_s:
            count += before.count
        self._by_owner[str(owner)] = Starts(str(owner), count, now_s, owner.trusted)


def _left_s(last_s: float, pause_s: float, now_s: float) -> float:
    # If the clock was set back, the last start was at most now.
    return max(0.0, min(last_s, now_s) + pause_s - now_s)


@dataclass
class UntracedServers:
    """Servers that this run cannot trace, or not wholly, until the agent starts again.

    Args:
        restarts: records a start that is due.
        say: logs a line.
        attach: the configured attach mode.
        stored: whether a store hands `restarts` over to the next start.
        owner: of a process; None: it has ended.
        chosen: the user chose processes, so another start would find no others.
        level: of the budget, in this run.
    """

    restarts: Restarts
    say: Callable[[str], object]
    attach: str
    stored: bool
    owner: Callable[[int], Owner | None]
    chosen: bool = False
    level: int = 0
    _waiting: dict[int, float] = field(default_factory=dict)  #: since when, by pid
    #: owners whose servers wait, and servers that stay hidden
    _reported: set[Owner | str] = field(default_factory=set)

    def worth_a_start(self, snapshot: Snapshot, wall_s: float) -> str:
        """Returns why the agent should restart now; empty if it should not. `wall_s`: Unix time."""
        untraced = {
            change.pid
            for change in not_traced(snapshot.interval)
            if change.what == UNTRACED and change.pid and change.pid not in self.restarts.tried
            # Without a store, `tried` is not handed over.
            if (change.since or self.stored) and not self.chosen
        }
        hiding = dict(self._servers_hiding_sessions(snapshot.interval))
        pids = untraced | hiding.keys()
        self._waiting = {pid: self._waiting.get(pid, snapshot.elapsed_s) for pid in pids}
        due = [
            pid
            for pid, since_s in self._waiting.items()
            if snapshot.elapsed_s - since_s >= PATIENCE_S
        ]
        owner = self._most_trusted(due, snapshot.elapsed_s, wall_s)
        if owner is None:
            return ""
        self.restarts.tried += (pid for pid in due if pid in untraced)
        hidden = [hiding[pid] for pid in due if pid in hiding]
        self.restarts.hidden += hidden
        self.restarts.note(owner, wall_s)
        if hidden:
            names = ", ".join(name for _, name in hidden)
            return f"the attach mode symbol shows what TLS or compression hides of {names}"
        return f"a server of {owner} runs that was not there at the start"

    def _servers_hiding_sessions(
        self, result: Attribution
    ) -> Iterator[tuple[int, tuple[str, str]]]:
        """Servers whose sessions TLS or compression hides, and probes would show: pid of the main
        process, and the entry for `Restarts.hidden`.
        """
        stays = ""
        if not self.stored:
            stays = "without a store no other attach mode outlasts a start"
        elif self.attach != "auto":
            stays = "tracing.attach is not auto"
        elif self.level >= PROBES_LEFT_OUT:
            stays = f"budget level {self.level} leaves out {LEVELS[self.level]}"
        for change in result.trace.changes:
            if change.what != HIDDEN:
                continue
            if why := change.why or stays:
                if change.name not in self._reported:
                    self.say(
                        f"{change.name} hides sessions by TLS or compression, and stays so: {why}"
                    )
                self._reported.add(change.name)
            elif (owner := self.owner(change.pid)) is not None:
                key = str(owner), change.name
                if key not in self.restarts.hidden:
                    yield change.pid, key

    def _most_trusted(self, pids: Iterable[int], elapsed_s: float, wall_s: float) -> Owner | None:
        """The most trusted owner of one of these servers for whom another start is due."""
        waited_s: dict[Owner, float] = {}
        for pid in pids:
            if (whose := self.owner(pid)) is not None:
                waited_s[whose] = max(waited_s.get(whose, 0.0), elapsed_s - self._waiting[pid])
        for owner in sorted(waited_s, key=lambda owner: (owner.trust, str(owner))):
            wait_s = self.restarts.wait_s(owner, wall_s)
            if not owner.trusted:
                wait_s = max(wait_s, STRANGERS_PATIENCE_S - waited_s[owner])
            if not self.stored:  # nothing is handed over: this run is all that is known
                wait_s = UNKNOWN_S - elapsed_s if owner.trusted else math.inf
            if wait_s <= 0:
                return owner
            if owner not in self._reported:
                self._reported.add(owner)
                when = "never without a store" if wait_s == math.inf else f"in {wait_s:.0f} s"
                self.say(f"a server of {owner} stays as it is: starting again for it {when}")
        return None


def not_traced(result: Attribution) -> Iterator[ServerChange]:
    """Servers that run untraced now, or have exited."""
    for change in result.trace.changes:
        if change.what in (UNTRACED, "exited") and not change.until:
            yield change
