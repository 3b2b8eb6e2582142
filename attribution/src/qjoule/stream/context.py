# SPDX-License-Identifier: Apache-2.0
"""Inputs of a stream's reader beside the stream, for a recording, a capture or a live view: servers
that are followed or watched while it lasts, and an external power meter."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Protocol

import numpy as np

from qjoule.contract import OwnerKind
from qjoule.servers.decoding import OtherIds
from qjoule.trace.columns import Array
from qjoule.trace.meta import Change, EnergyInfo, Meta, MeterInfo, Server

if TYPE_CHECKING:
    from qjoule.stream.client_reports import CallReports
    from qjoule.stream.names import Fingerprint


@dataclass(frozen=True)
class Followed:
    """The reattach helper's answer on one process.

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
    """Knows the servers that are not traced: `qjoule.stream.watch`, or a capture."""

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

    Only segments of kind PROCESS count: those of a followed server are of another kind.
    """
    others = segments["owner_kind"] == OwnerKind.PROCESS
    mine = segments[others & np.isin(segments["tgid"], list(tgids))]
    processes, which = np.unique(mine["tgid"], return_inverse=True)
    sums = np.bincount(which, mine["t1_ns"] - mine["t0_ns"], len(processes))
    yield from zip(processes.tolist(), sums.astype(np.int64).tolist(), strict=True)


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
    why: str = ""  #: reason that it is not traced
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
    #: times of exit and of return
    exited_ns: list[tuple[int, int | None]] = field(default_factory=list)


@dataclass(frozen=True)
class StreamContext:
    """`meta` starts with what is not in the stream: host, kernel, servers.

    Attributes:
        client_tags: also read the tags that clients set for a connection.
        reports: source of the calls of applications; None: nobody reports any.
        meter: an external power meter, if there is one.
        watch: notices servers that are not traced.
        ids: finds the ids that other tools have for statements; None: they are not wanted.
    """

    fingerprint: Fingerprint
    meta: Meta = field(default_factory=Meta)
    client_tags: bool = False
    reports: CallReports | None = None
    meter: Metering | None = None
    watch: Watching | None = None
    ids: OtherIds | None = None


class Share(Enum):
    """Which tables a reader makes. `TIMES`: segments, their owners, energy and loss. `QUERIES`: the
    rest.

    Query rows never depend on segments, nor segments on queries. So two processes that read the
    same stream make the same tables as one does.
    """

    ALL = "all"
    TIMES = "times"
    QUERIES = "queries"

    @property
    def has_times(self) -> bool:
        return self is not Share.QUERIES

    @property
    def has_queries(self) -> bool:
        return self is not Share.TIMES


class Reading(Protocol):
    """A reading of a meter, see `qjoule.session.meter_lines`."""

    @property
    def t_ns(self) -> int: ...

    @property
    def stamp_ns(self) -> int | None: ...

    @property
    def raw(self) -> int: ...


class Metering(Protocol):
    """A meter beside the stream: see `qjoule.session.meter`."""

    @property
    def info(self) -> MeterInfo | None:
        """The meter's entry in meta.json; None before the first reading."""

    @property
    def bad(self) -> int:
        """Number of its lines so far that were not readings."""

    def readings(self) -> Sequence[Reading]:
        """Its readings since the last call."""


def with_meter(meta: Meta, info: MeterInfo | None) -> Meta:
    """Adds the meter to `meta`. A machine without its own counters has only the meter's energy."""
    if info is None or meta.meter is not None:
        return meta
    energy = meta.energy
    if energy.source in ("", "none"):
        energy = EnergyInfo("meter", "measured", f"wall meter {info.name}")
    return replace(meta, meter=info, energy=energy)
