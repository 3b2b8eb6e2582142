# SPDX-License-Identifier: Apache-2.0
"""The short test: rest, then A alone, B alone and both, in rounds; each is recorded separately.

A computes, B waits for memory. Each run is a separate trace, so the attribution of the joint run
cannot learn from the solo runs. The order changes from round to round, so that a drift of the
machine (it warms up) does not favour one of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from qjoule.api.model import Attribution
from qjoule_studies.physical.judgement import Round
from qjoule_studies.physical.kit.collect import Collection, Schedule, collect
from qjoule_studies.physical.kit.document import Load
from qjoule_studies.physical.kit.figures import mean_rest_w, rounds_of
from qjoule_studies.physical.kit.host import this_host
from qjoule_studies.physical.machine import table_bytes

_KINDS = ("computing", "memory")  #: of A and of B


@dataclass(frozen=True)
class Plan:
    """Number and length of rounds, the energy source, and the calibration for the split.

    `energy` and `calibration` as in the options of `qjoule record` and `qjoule attribute`.
    """

    rounds: int
    seconds: float
    energy: str = "auto"
    calibration: str | None = None


@dataclass(frozen=True)
class Experiment:
    """What was measured. `last`: the last joint run. `statements`: A's and B's."""

    rounds: tuple[Round, ...]
    rest_w: float
    table_bytes: int
    cache_bytes: int | None
    last: Attribution
    statements: tuple[str, str] = ("", "")


def experiment(plan: Plan, say: Callable[[str], None]) -> Experiment:
    """Runs the experiment on a server of its own; `say` is called for each step.

    Raises `QjouleError` if there is no energy to measure, or if a part of it fails. Leaves no
    process and no directory behind.
    """
    size, cache = table_bytes()
    done = Collection()
    with this_host(plan.energy, say, second=False) as host:
        server = host.servers[0]
        a, b = (host.loads.index(Load(server.product, kind)) for kind in _KINDS)
        runs = ((), (a,), (b,), (a, b))
        steps = Schedule(runs, plan.rounds, plan.seconds, budget_s=math.inf)
        collect(host, steps, done, say, calibration=plan.calibration)
    statement_a, statement_b = (server.statements[kind][0] for kind in _KINDS)
    rounds, rest_w = tuple(rounds_of(done.runs, (a, b))), mean_rest_w(done.runs)
    assert done.last is not None
    assert rest_w is not None
    return Experiment(rounds, rest_w, size, cache, done.last, (statement_a, statement_b))
