# SPDX-License-Identifier: Apache-2.0
"""The recording of a simulated machine, and the truth that it does not contain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qjoule.model.arrays import LostTime, Machine, Segments
from qjoule.model.energy import Readings, Series
from qjoule.trace.meta import IdleState

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]

KINDS = ("queries", "background", "other_processes", "kernel", "tracer")


@dataclass(frozen=True)
class Group:
    """The owner that segments are charged to. `kind` is one of `KINDS`."""

    name: str
    kind: str


@dataclass(frozen=True)
class Recording:
    """Everything that a tracer on a real machine would have recorded, and nothing else.

    `segments` are sorted by `t0_ns`; their `group` indexes `groups`. `query` (n,) is the number of
    the query instance that each ran for, -1 none. `period_ns` is the intended period of the energy
    readings.
    """

    machine: Machine
    series: tuple[Series, ...]
    readings: Readings
    begin_ns: int
    end_ns: int
    segments: Segments
    query: I64
    groups: tuple[Group, ...]
    lost: tuple[LostTime, ...]
    period_ns: int
    idle_states: tuple[IdleState, ...] = ()


@dataclass(frozen=True)
class Truth:
    """Nanojoules that each owner caused between `begin_ns` and `end_ns`, by domain, packages added.

    The rule of attribution is in `studies.bench.accuracy.physics`. `group_nj[domain]` is (groups,),
    `query_nj[domain]` is (queries,), and `query_group` (queries,) the group of each, -1 for a
    number that no query has. `idle_nj` + the groups = `total_nj`. `idle_w` is the mean power at
    rest of each package and domain over the run.
    """

    group_nj: dict[str, F64]
    query_nj: dict[str, F64]
    query_group: I64
    idle_nj: dict[str, float]
    total_nj: dict[str, float]
    idle_w: dict[tuple[int, str], float]


@dataclass(frozen=True)
class Phase:
    """A time span of a calibration run in which one load kernel, or none ("idle"), ran.

    `threads` of them ran: on both siblings of their cores if `smt`, otherwise on separate cores.
    """

    name: str
    t0_ns: int
    t1_ns: int
    threads: int
    smt: bool


@dataclass(frozen=True)
class Case:
    """One draw of a scenario: a recording, its truth, and a calibration run on the same machine.

    `family` names the machine's kind of physics. `number` counts the cases of one machine. `idle`:
    a minute in which the machine idled, shortly before; None if there was none.
    """

    scenario: str
    seed: int
    recording: Recording
    truth: Truth
    calibration: Recording | None
    calibration_phases: tuple[Phase, ...]
    family: str = "friendly"
    number: int = 0
    idle: Recording | None = None
