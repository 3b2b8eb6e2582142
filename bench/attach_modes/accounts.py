# SPDX-License-Identifier: Apache-2.0
"""Cross-checks an attach mode's cost with the kernel's own accounts of the BPF programs it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.overhead.programs import accounts, between, programs_of, statistics


@dataclass(frozen=True)
class Firing:
    """A program's figures per query. Its time includes the kernel's clock reads around each run."""

    program: str
    runs: float
    ns_per_run: float
    shared: bool = False  #: also present in a recording without the attach mode

    @property
    def ns(self) -> float:
        return self.runs * self.ns_per_run


@dataclass(frozen=True)
class Accounts:
    """Programs by name, wherever on the machine they ran, including for the client's threads."""

    firings: dict[str, Firing]

    @property
    def ns(self) -> float:
        return sum(one.ns for one in self.firings.values())

    @property
    def own_ns(self) -> float:
        """Cost of the programs that only this attach mode has. Other activity on the machine does
        not affect it.
        """
        return sum(one.ns for one in self.firings.values() if not one.shared)

    def over(self, without: Accounts) -> Accounts:
        """What an attach mode adds to a recording without it.

        Programs that both have are compared by their time per run only: how often they ran depends
        on what else the machine did.
        """
        more = {}
        for name, one in self.firings.items():
            other = without.firings.get(name)
            per_run = one.ns_per_run - (other.ns_per_run if other else 0.0)
            more[name] = Firing(name, one.runs, per_run, shared=other is not None)
        return Accounts(more)

    def shown(self, least_ns: float = 20.0) -> str:
        """Formats as `0.41 µs: on_recv 2.0 of 190 ns`; small ones are only in the sum."""
        ordered = sorted(self.firings.values(), key=lambda one: -abs(one.ns))
        parts = [
            f"{one.program} {one.runs:.1f} of {one.ns_per_run:.0f} ns"
            for one in ordered
            if abs(one.ns) >= least_ns
        ]
        return f"{self.ns / 1000:.2f} µs: {', '.join(parts) or 'none to speak of'}"


def account_of(holder: int, work: Callable[[], object], queries: int) -> Accounts:
    """Makes the kernel account for the programs that a process holds while `work` runs queries."""
    with statistics():
        ours = programs_of([holder])
        before = accounts(ours)
        work()
        after = accounts(ours)
    found = between(before, after)
    return Accounts(
        {one.name: Firing(one.name, one.runs / queries, one.ns / one.runs) for one in found}
    )
