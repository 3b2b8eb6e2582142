# SPDX-License-Identifier: Apache-2.0
"""Decides for the attach modes of servers, some of which may run the same executable.

A probe is hit by all processes that run the file, so those servers share one attach mode. A server
of one owner must not get a probe into a file that another owner's server does without: it is traced
without, or not at all. Only the host's own services may, and servers that the user named.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from qjoule.contract import AttachMode
from qjoule.servers.choice import Choice, KernelFacts
from qjoule.servers.registered import choose_attach_mode
from qjoule.servers.resolution import Agent, FileKey, Resolution
from qjoule.servers.types import Server


@dataclass(frozen=True)
class Member:
    """A server beside others that may run its file."""

    server: Server
    resolution: Resolution
    agent: Agent | None
    wanted: AttachMode | None  #: the user's choice

    @property
    def file(self) -> FileKey:
        return self.resolution.file

    @property
    def may_pool(self) -> bool:
        return self.server.thread_pool.value is not False

    def choice(self, kernel: KernelFacts, problem: str = "", shared: str = "") -> Choice:
        """`problem`: why there must be no probe for it; `shared`: why there are some anyway."""
        problem = self.resolution.problem or problem
        with_agent = self.agent is not None
        return choose_attach_mode(
            self.server, kernel, problem, self.wanted, shared, agent=with_agent
        )


@dataclass(frozen=True)
class Decided:
    choices: list[Choice]
    pooled: frozenset[FileKey]  #: files of which some server may run a thread pool


def decide(members: Sequence[Member], kernel: KernelFacts, *, named: bool) -> Decided:
    """One choice per member. `named`: the user named all of these servers."""
    own = [member.choice(kernel) for member in members]
    on_symbols = [
        m for m, choice in zip(members, own, strict=True) if choice.attach_mode is AttachMode.SYMBOL
    ]
    without = [
        member
        for member, choice in zip(members, own, strict=True)
        if choice.traced and choice.attach_mode is not AttachMode.SYMBOL
    ]
    probed: dict[FileKey, str] = {}
    for member in on_symbols:
        if named or _stranger(member, without) is None:
            why = f"{member.server.label} runs the same executable and needs its probes"
            probed.setdefault(member.file, why)
    pooled = frozenset(
        member.file
        for member in members
        if member.may_pool and (named or _stranger(member, members) is None)
    )

    def problem(member: Member) -> str:
        if member.file not in probed:
            return _why(_stranger(member, without), "does without probes")
        if member.may_pool and member.file not in pooled:
            return _why(_stranger(member, members), "needs other probes, without a thread pool")
        return ""

    choices = [
        member.choice(
            kernel,
            problem(member) if choice.attach_mode is AttachMode.SYMBOL else "",
            probed.get(member.file, ""),
        )
        for member, choice in zip(members, own, strict=True)
    ]
    return Decided(
        [
            choice if choice.no_symbol != "" else replace(choice, no_symbol=problem(member))
            for member, choice in zip(members, choices, strict=True)
        ],
        pooled,
    )


def falling_back(members: Sequence[Member], kernel: KernelFacts) -> list[Member]:
    """The same, without a wish where some server of the file cannot have it."""
    files = {member.file for member in members if member.choice(kernel).refused}
    return [replace(member, wanted=None) if member.file in files else member for member in members]


def _stranger(member: Member, others: Iterable[Member]) -> Server | None:
    """A server of the same file for which this one must not decide, if there is one."""
    owner = member.server.owner
    if owner.trusted:
        return None
    return next(
        (
            other.server
            for other in others
            if other.file == member.file and other.server.owner != owner
        ),
        None,
    )


def _why(other: Server | None, what: str) -> str:
    if other is None:
        return ""
    return f"{other.label} ({other.owner}) runs the same executable and {what}: choose with --pid"
