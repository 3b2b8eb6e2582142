# SPDX-License-Identifier: Apache-2.0
"""A simulated fleet: its hosts, its statements, when they live, and how wrong their joules are.

Everything follows from a `Plan` with its seed. `hours` makes rows of rollups from it. The errors
are drawn as the model says that they behave: one draw per host for what is common to a host, one
per fingerprint for what is common to a shape, one per row for what is independent.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from qjoule.model.arrays import F64
from qjoule.model.energy import I64

DAY_MINUTES = 1_440
#: Servers of a host; a statement runs on one of them.
SERVERS = (("shop", "mysql", "10.11"), ("books", "postgres", "15.8"))
TENANTS = 20
GRADES = ("measured", "estimated", "simulated")
MEASURED, ESTIMATED = 0, 1
POLICY = "separate"


@dataclass(frozen=True)
class Plan:
    """What is simulated. `begin`: a day at 0 h UTC.

    `one_sided`: whether some of the errors are bounds of unknown sign (unnamed records, power at
    rest). They make intervals wider than 95 %, so the coverage of the rest is checked without.
    """

    hosts: int = 100
    days: int = 1
    shapes: int = 500  #: that live at a time
    seed: int = 1
    begin: datetime = datetime(2026, 3, 2, tzinfo=UTC)
    calls_per_s: float = 200.0  #: of a host, mean over hosts and the day
    load_spread: float = 0.6  #: of the logarithm of the hosts' loads
    zipf: float = 1.1
    churn_per_day: float = 0.04  #: share of the shapes that is replaced in a day
    estimated: float = 0.2  #: share of the hosts without an energy counter
    one_sided: bool = True
    prefix: str = "db"
    service: str = ""  #: what the servers' names begin with

    @property
    def hours(self) -> int:
        return 24 * self.days

    @property
    def servers(self) -> tuple[str, ...]:
        return tuple(self.service + name for name, _, _ in SERVERS)

    @property
    def begin_s(self) -> int:
        return int(self.begin.timestamp())


@dataclass(frozen=True)
class Hosts:
    """Arrays of n hosts. Widths are shares of an energy, at 95 %; `…_z` is how many standard errors
    the truth is away, unknown to who reads the rollups."""

    names: tuple[str, ...]
    host_ids: tuple[str, ...]
    phase_h: F64  #: when its day begins, in hours after UTC
    load: F64  #: relative to the mean
    efficiency: F64  #: joules of a statement on it, relative to the mean
    grade: I64
    total: F64
    total_z: F64
    scaled: F64
    scaled_z: F64
    loss: F64
    loss_z: F64
    unnamed: F64
    down: F64
    up: F64
    bias: F64  #: where between the bounds of the last three the truth is, -1 to 1
    deploy_minute: I64  #: when the release of the middle of the plan reaches it


@dataclass(frozen=True)
class Lives:
    """Arrays of n statements. `slot`: its place in the order by calls; a slot is always taken."""

    fingerprints: tuple[str, ...]
    texts: tuple[str, ...]
    slot: I64
    born_minute: I64
    dead_minute: I64
    weight: F64  #: share of a host's calls
    energy_nj: F64  #: of a call
    cpu_ns: F64
    latency_ns: F64
    model: F64  #: standard error of the model, as a share of the energy
    model_z: F64
    server: I64
    tenant: I64
    release: F64  #: by what factor the release of the middle of the plan changes its energy


@dataclass(frozen=True)
class Fleet:
    plan: Plan
    hosts: Hosts
    lives: Lives


def draw(plan: Plan) -> Fleet:
    """The fleet of a plan; the same plan always gives the same fleet."""
    random = np.random.default_rng([plan.seed, 1])
    return Fleet(plan, _hosts(plan, random), _lives(plan, random))


def _hosts(plan: Plan, random: np.random.Generator) -> Hosts:
    n = plan.hosts
    grade = np.where(random.random(n) < plan.estimated, ESTIMATED, MEASURED)
    sided = float(plan.one_sided)
    middle = plan.days * DAY_MINUTES // 2
    return Hosts(
        names=tuple(f"{plan.prefix}{i:05d}" for i in range(n)),
        host_ids=tuple(f"{value:016x}" for value in random.integers(0, 1 << 63, n)),
        phase_h=random.choice([-6.0, 1.0, 8.0], n) + random.normal(0, 0.7, n),
        load=random.lognormal(-(plan.load_spread**2) / 2, plan.load_spread, n),
        efficiency=random.lognormal(0, 0.08, n),
        grade=grade,
        total=np.where(grade == MEASURED, 0.01, 0.25) * random.uniform(0.7, 1.3, n),
        total_z=_common(random, grade),
        scaled=_some(random, n, 0.02),  # counters are multiplexed where something else counts
        scaled_z=_common(random, grade),
        loss=_some(random, n, 0.02),
        loss_z=_common(random, grade),
        unnamed=sided * _some(random, n, 0.005),
        down=sided * 0.01 * random.random(n),
        up=sided * _some(random, n, 0.01),
        bias=random.uniform(-1, 1, n),
        deploy_minute=(middle + random.integers(0, 60, n)).astype(np.int64),
    )


def _common(random: np.random.Generator, grade: I64) -> F64:
    """Errors that each host has for itself; hosts whose energy is estimated share a power model,
    and with it the error."""
    own, shared = random.normal(size=len(grade)), random.normal()
    return np.where(grade == ESTIMATED, shared, own)


def _some(random: np.random.Generator, n: int, most: float) -> F64:
    """A fifth of the hosts has such an error, up to `most` of the energy."""
    return np.where(random.random(n) < 0.2, most * random.random(n), 0.0)


def _lives(plan: Plan, random: np.random.Generator) -> Lives:
    """A slot's statement is replaced at random times, so that new ones appear and old ones die."""
    minutes = plan.days * DAY_MINUTES
    replaced = random.poisson(plan.churn_per_day * plan.days, plan.shapes)
    slots = np.arange(plan.shapes)
    slot = np.concatenate([slots, np.repeat(slots, replaced)])
    born = np.concatenate([0 * slots, random.integers(1, minutes, replaced.sum())])
    order = np.lexsort((born, slot))
    slot, born = slot[order], born[order]
    n = len(slot)
    dead = np.append(born[1:], 0)
    dead[np.append(slot[1:] != slot[:-1], True)] = minutes
    weight = (slot + 1.0) ** -plan.zipf
    weight /= weight[born == 0].sum()
    cpu_ns = random.lognormal(np.log(4e5), 1.2, n)
    return Lives(
        fingerprints=tuple(f"{value:016x}" for value in random.integers(0, 1 << 63, n)),
        texts=tuple(f"SELECT c{i % 7} FROM t{i} WHERE id = ?" for i in range(n)),
        slot=slot,
        born_minute=born,
        dead_minute=dead,
        weight=weight,
        energy_nj=cpu_ns * random.lognormal(np.log(8), 0.25, n),  # some 8 W while it runs
        cpu_ns=cpu_ns,
        latency_ns=cpu_ns * random.lognormal(0.7, 0.5, n),
        model=random.uniform(0.01, 0.06, n),
        model_z=random.normal(size=n),
        server=np.where(random.random(n) < 0.7, 0, 1),
        tenant=random.integers(0, TENANTS, n),
        release=np.where(random.random(n) < 0.1, random.uniform(0.6, 1.8, n), 1.0),
    )
