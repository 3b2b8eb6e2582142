# SPDX-License-Identifier: Apache-2.0
"""A simulated host for the kit: its servers and loads are those of a machine of known power."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from physical_cells import SimulatedLoad
from physical_machine import SimulatedMachine, machine
from qjoule.machine.facts import Cpu, CpuInfo
from qjoule.machine.identity import Identity
from qjoule.trace.reader import Trace
from qjoule_studies.physical.kit.collect import Collection, Schedule, collect, document_of, schedule
from qjoule_studies.physical.kit.document import KINDS, Document, Load
from qjoule_studies.physical.kit.host import Recorded, Traced

PRODUCTS = ("mariadb", "postgres")
#: By product and kind; what the two products do differs a little.
SIMULATED = {
    Load("mariadb", "computing"): SimulatedLoad("c1", 7.0, 0.0),
    Load("mariadb", "memory"): SimulatedLoad("m1", 0.8, 0.005),
    Load("mariadb", "bursts"): SimulatedLoad("b1", 6.0, 0.0, 300_000, 700_000),
    Load("postgres", "computing"): SimulatedLoad("c2", 6.0, 0.001, server=2),
    Load("postgres", "memory"): SimulatedLoad("m2", 1.2, 0.008, server=2),
    Load("postgres", "bursts"): SimulatedLoad("b2", 5.0, 0.0, 300_000, 1_000_000, server=2),
}
INFO = CpuInfo(
    "GenuineIntel",
    6,
    85,
    7,
    "Example CPU 9000 @ 2.50GHz",
    False,
    tuple(Cpu(cpu, 0, cpu, (cpu,)) for cpu in range(4)),
)
IDENTITY = Identity(host="db1", kernel="6.1.0-18-secret", governor="performance")


@dataclass
class SimulatedHost:
    """See `qjoule_studies.physical.kit.host.Host`. `before`: is called with each run's number."""

    folder: Path
    machine: SimulatedMachine
    loads: tuple[Load, ...]
    one_at_a_time: frozenset[str] = frozenset()
    absent: tuple[str, ...] = ()
    before: Callable[[int], None] = lambda _number: None
    recorded: list[tuple[tuple[int, ...], float]] = field(default_factory=list)

    def record(self, loads: Sequence[int], seconds: float) -> Recorded:
        self.before(len(self.recorded))
        self.recorded.append((tuple(loads), seconds))
        path = self.folder / f"run-{len(self.recorded)}"
        chosen = [SIMULATED[self.loads[at]] for at in loads]
        span_ns = self.machine.record(path, chosen, seconds, len(self.recorded))
        traced = tuple(
            Traced(self.loads[at].server, (load.fingerprint,), "nobody")
            for at, load in zip(loads, chosen, strict=True)
        )
        return Recorded(Trace(path), span_ns, traced)


def host(
    folder: Path, products: Sequence[str] = PRODUCTS, residual: float = 0.4, **changed: object
) -> SimulatedHost:
    """A host with these products."""
    loads = tuple(Load(product, kind) for product in products for kind in KINDS)
    computing = [SIMULATED[load] for load in loads if load.kind == "computing"]
    servers = tuple((f"{product}:3306", product) for product in products)
    of = replace(machine(residual, computing), servers=servers)
    return SimulatedHost(folder, of, loads, **changed)  # type: ignore[arg-type]


def steps(on: SimulatedHost, rounds: int = 3, seconds: float = 1.0) -> Schedule:
    return schedule(on.loads, on.one_at_a_time, budget_s=3600.0, seconds=seconds, rounds=rounds)


def collected(on: SimulatedHost, rounds: int = 3, seconds: float = 1.0, **wrong: float) -> Document:
    """A kit of all runs on a host whose calibration is right, except for `wrong` coefficients."""
    calibration = on.machine.calibration(on.folder / "calibration.json", **wrong)
    into, plan = Collection(), steps(on, rounds, seconds)
    collect(on, plan, into, lambda _words: None, calibration=str(calibration))
    return document_of(into, on, plan, INFO, IDENTITY)
