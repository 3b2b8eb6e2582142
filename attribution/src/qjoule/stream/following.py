# SPDX-License-Identifier: Apache-2.0
"""Servers that are followed or watched while a stream lasts, as those who read it know them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from qjoule.contract import OwnerKind
from qjoule.trace.columns import Array
from qjoule.trace.meta import Change, Server


@dataclass(frozen=True)
class Followed:
    """The reattach helper's word on one process.

    `server` None: it is not traced, for the reason `why`. `attached`: its probes are in place and
    its threads are known. Before that, the answer only announces the server's name.
    """

    pid: int
    server: Server | None = None
    attached: bool = False
    why: str = ""


class Follower(Protocol):
    """Has processes followed that turn out to be servers."""

    def ask(self, pid: int) -> None: ...

    def take(self) -> list[Followed]:
        """The answers since the last call."""


class NoFollower:
    """For streams that nobody can attach anything to: replays, tests."""

    def ask(self, pid: int) -> None:
        pass

    def take(self) -> list[Followed]:
        return []


class Watching(Protocol):
    """What is known of servers that are not traced: `qjoule.stream.watch`, or kept from before."""

    learnt: list[Callable[[Server], object]]

    @property
    def news(self) -> int: ...
    @property
    def changes(self) -> tuple[Change, ...]: ...
    def process_of(self, tgid: int) -> str: ...
    def untraced_now(self, tgid: int) -> str: ...
    def tasks(self, records: Array) -> None: ...
    def sessions(self, records: Array) -> None: ...
    def ran(self, segments: Array) -> None: ...
    def advance(self, t_ns: int, *, everything: bool = False) -> set[int]: ...


def untraced_cpu_ns(segments: Array, tgids: Collection[int]) -> Iterator[tuple[int, int]]:
    """CPU time of these processes in segments (`contract.SEGMENT`), by tgid.

    Only what they ran as other processes: once a server is followed, its time is its own.
    """
    others = segments["owner_kind"] == OwnerKind.PROCESS
    mine = segments[others & np.isin(segments["tgid"], list(tgids))]
    found, which = np.unique(mine["tgid"], return_inverse=True)
    sums = np.bincount(which, mine["t1_ns"] - mine["t0_ns"], len(found))
    yield from zip(found.tolist(), sums.astype(np.int64).tolist(), strict=True)


@dataclass
class Candidate:
    """A process that may be an untraced server, with those that it forks."""

    pid: int
    comm: str
    since_ns: int | None  #: None: before the trace
    parent: int
    until_ns: int | None = None
    is_server: bool = False
    cpu_ns: int = 0
    why: str = ""  #: it is not traced
    tgids: set[int] = field(default_factory=set)

    @property
    def process(self) -> str:
        return f"{self.comm} (untraced, pid {self.pid})"


@dataclass
class Traced:
    """The processes of one traced server, with their begin (None: before the trace)."""

    name: str
    no_symbol: str | None = None  #: as `trace.meta.Server`
    hidden_ns: int | None = None  #: since when it has sessions that cannot be read; None: has none
    alive: dict[int, int | None] = field(default_factory=dict)
    comms: set[str] = field(default_factory=set)
    exited_ns: list[tuple[int, int | None]] = field(default_factory=list)  #: and when it was back
