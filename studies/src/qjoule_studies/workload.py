# SPDX-License-Identifier: Apache-2.0
"""What a study runs against a server, and the outcome of one run.

The study's process prepares a workload, and then has it run by a process of its own
(`qjoule_studies.client`) while `qjoule record` traces the server, so that the client's own cost is
separate from the server's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

#: An option of a workload, a factor's level, a setting of a server: what TOML and JSON both have.
Value = str | int | float | bool


@dataclass(frozen=True)
class Target:
    """A server that runs, and how a client reaches it.

    Attributes:
        flavour: one of `servers.products()`.
        pid: of its main process, to be traced; 0 if it is not known.
        socket: path of its Unix socket; empty if there is none.
        database: which of its databases is used; empty for the workload's own choice.
    """

    flavour: str
    pid: int = 0
    host: str = "127.0.0.1"
    port: int = 0
    socket: str = ""
    user: str = ""
    password: str = ""
    database: str = ""


@dataclass(frozen=True)
class Latencies:
    """Latencies of one command's operations, in nanoseconds."""

    operations: int
    mean_ns: float
    p50_ns: float
    p95_ns: float
    p99_ns: float


@dataclass(frozen=True)
class Outcome:
    """What the client saw of one run.

    Attributes:
        operations: that succeeded.
        errors: operations that failed; they are not among `operations`.
        wall_s: from the first operation's start to the last one's end.
        client: what ran the operations: `go-ycsb 1.0.1`, `qjoule`.
        commands: latencies by the command's name (`read`, `Q1`, `worse`); where there are several,
            those of `all` operations too, if they are known.
        notes: for people: what was left out, and why.
    """

    operations: int
    errors: int
    wall_s: float
    client: str
    commands: Mapping[str, Latencies] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Workload(Protocol):
    """A kind of work. `options` are complete: those of `defaults`, some of them replaced.

    Raises:
        UsageError: an option's value makes no sense, or the flavour cannot do it.
        QjouleError: the server refuses, or has gone.
    """

    @property
    def name(self) -> str: ...

    @property
    def flavours(self) -> frozenset[str]:
        """The servers that it can be run against."""

    @property
    def defaults(self) -> Mapping[str, Value]:
        """Every option with its default."""

    def prepare(self, target: Target, options: Mapping[str, Value]) -> None:
        """Creates and fills what `run` needs. Called before each run; quick if all is there."""

    def run(self, target: Target, options: Mapping[str, Value]) -> Outcome:
        """Does the work once. This is what is recorded."""
