"""CPU time per query of one server, traced and not, by turns."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

from bench.overhead.cpu import cpu_ns
from bench.overhead.modes import Subject, attached
from bench.rungs.targets import Target

from qjoule.errors import QjouleError
from qjoule.live.tracer import plan_tracing
from servers.process import DatabaseServer


@dataclass(frozen=True)
class Size:
    """How much is run: each turn has so many slices of so many queries."""

    rounds: int = 12
    slices: int = 9
    queries: int = 1000


@dataclass
class Pairs:
    """In ns per query, one figure per round. `version` is the server's."""

    version: str
    added: list[float] = field(default_factory=list)
    untraced: list[float] = field(default_factory=list)
    lost_records: dict[str, int] = field(default_factory=dict)

    def add(self, before: float, during: float, after: float) -> None:
        """One round: a traced turn against the untraced ones on both sides of it."""
        beside = (before + after) / 2.0
        self.untraced.append(beside)
        self.added.append(during - beside)


def turn(server: DatabaseServer, run: Callable[[], object], size: Size) -> float:
    """The server's CPU time per query in ns: the median of the slices, in ns.

    A process that ends or begins meanwhile would take its time along, so those there at the
    beginning count: connections are open before.
    """
    pids = server.tgids
    costs = []
    for _ in range(size.slices):
        before = cpu_ns(pids)
        for _ in range(size.queries):
            run()
        costs.append((cpu_ns(pids) - before) / size.queries)
    return median(costs)


def measure(target: Target, size: Size, say: Callable[[str], None]) -> Pairs:
    """Runs the rounds on a server of its own.

    Raises:
        QjouleError: this server cannot be traced on this rung.
        Unavailable: there is no such server here.
    """
    with target.start() as server:
        plan = plan_tracing([server.pid], target.rung)
        (planned,) = plan.traced
        if planned.choice.rung is not target.rung:
            raise QjouleError(f"{target.name}: {planned.choice.why}")
        subject = Subject(server, plan, target.rung.name.lower())
        pairs = Pairs(planned.server.version)
        with server.connect(tcp=target.tcp) as connection:
            run = target.prepare(connection)
            turn(server, run, size)  # caches warm
            before = turn(server, run, size)
            for number in range(1, size.rounds + 1):
                say(f"round {number} of {size.rounds}")
                with attached("record", subject) as state:
                    turn(server, run, Size(1, 1, size.queries))  # its first look at the query
                    during = turn(server, run, size)
                after = turn(server, run, size)
                pairs.add(before, during, after)
                before = after
                loss = state.result.get("loss")
                for cause, count in loss.items() if isinstance(loss, dict) else ():
                    pairs.lost_records[cause] = pairs.lost_records.get(cause, 0) + int(count)
    return pairs


def load_average() -> float:
    return os.getloadavg()[0]
