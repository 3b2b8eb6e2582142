# SPDX-License-Identifier: Apache-2.0
"""Processes that a `Watch` watches: those of traced servers, and those that may be servers."""

from __future__ import annotations

from dataclasses import dataclass, field


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
