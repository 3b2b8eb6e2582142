# SPDX-License-Identifier: Apache-2.0
"""What those who read the stream know of servers that are followed while it lasts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from qjoule.trace.columns import Array
from qjoule.trace.meta import Change, Server


@dataclass(frozen=True)
class Followed:
    """The keeper's word on one process.

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
    def tasks(self, records: Array) -> None: ...
    def ran(self, segments: Array) -> None: ...
    def advance(self, t_ns: int, *, everything: bool = False) -> set[int]: ...
