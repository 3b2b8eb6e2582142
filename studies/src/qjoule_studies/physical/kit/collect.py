# SPDX-License-Identifier: Apache-2.0
"""Orders a kit's runs by the time there is, makes them on a host, and writes the kit's document."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import combinations

from qjoule.api import QjouleError, UsageError, __version__
from qjoule.api.model import Attribution
from qjoule.api.servers import CpuInfo, Identity
from qjoule.api.traces import Meta
from qjoule_studies.physical.kit import document as kit
from qjoule_studies.physical.kit.document import Load
from qjoule_studies.physical.kit.host import Host, Recorded, read_run
from qjoule_studies.physical.machine import NOTHING_TO_MEASURE, TESTABLE_GRADES

ROUNDS = 4
SETUP_S = 60.0  #: starting servers and filling tables
#: Starting and ending a recorder and the clients, and reading the trace: measured on two cores.
OVERHEAD_S = 4.0
SHORTEST_S = 1.0  #: of a run, if the budget decides
#: Positions of loads: none (rest), one (alone) or two.
Wanted = tuple[int, ...]


@dataclass(frozen=True)
class Schedule:
    """`runs` of one round, repeated `rounds` times in a changing order."""

    runs: tuple[Wanted, ...]
    rounds: int
    seconds: float
    budget_s: float

    def of_round(self, number: int) -> tuple[Wanted, ...]:
        """The runs of a round (from 1), rotated so that a drift favours no run."""
        turn = (number - 1) * len(self.runs) // self.rounds
        return (*self.runs[turn:], *self.runs[:turn])

    def seconds_for(self, left_s: float, runs: int, overhead_s: float) -> float:
        """Length of each of the next `runs` runs if `left_s` of the budget are left."""
        return max(min(self.seconds, left_s / max(runs, 1) - overhead_s), SHORTEST_S)

    def lines(self, loads: Sequence[Load]) -> list[str]:
        """Describes the plan, one line each."""
        alone = sum(len(run) == 1 for run in self.runs)
        mixed = sum(len(run) == 2 for run in self.runs)
        each_s = self.seconds + OVERHEAD_S
        round_s = each_s * len(self.runs)
        return [
            f"about {minutes(SETUP_S)} to start servers and fill tables",
            f"{self.rounds} rounds of about {minutes(round_s)}: at rest, {alone} loads alone, "
            f"{mixed} pairs; {self.seconds:.1f} s each and {OVERHEAD_S:.0f} s to begin and end",
            f"about {minutes(SETUP_S + self.rounds * round_s)} in all; Ctrl-C ends it and keeps "
            "what there is",
            "loads: " + ", ".join(load.name for load in loads),
        ]


def schedule(
    loads: Sequence[Load],
    one_at_a_time: frozenset[str],
    *,
    budget_s: float,
    seconds: float | None = None,
    rounds: int = ROUNDS,
) -> Schedule:
    """Rest, every load alone, and every pair that may run together.

    `one_at_a_time`: servers that serve all their clients with one thread, so that two loads on one
    of them would slow each other down. `seconds`: of a run; None: what the budget allows.

    Raises `UsageError` if the budget is too short for runs of `SHORTEST_S`.
    """
    runs: list[Wanted] = [(), *((at,) for at in range(len(loads)))]
    for a, b in combinations(range(len(loads)), 2):
        if loads[a].server != loads[b].server or loads[a].server not in one_at_a_time:
            runs.append((a, b))
    each_s = (budget_s - SETUP_S) / (rounds * len(runs))
    wanted_s = each_s - OVERHEAD_S if seconds is None else seconds
    if seconds is None and wanted_s < SHORTEST_S:
        least_s = SETUP_S + rounds * len(runs) * (OVERHEAD_S + SHORTEST_S)
        raise UsageError(
            f"{minutes(budget_s)} are too short for {rounds} rounds of {len(runs)} "
            f"runs: --budget {least_s / 60:.0f} or more, or --seconds-per-run"
        )
    return Schedule(tuple(runs), rounds, wanted_s, budget_s)


def minutes(seconds: float) -> str:
    """A time for people: `45 s`, `19:30 min`."""
    whole_s = max(round(seconds), 0)
    return f"{whole_s} s" if whole_s < 60 else f"{whole_s // 60}:{whole_s % 60:02d} min"


_VERSION = re.compile(r"\d{1,4}(\.\d{1,4}){0,2}")
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]+")


@dataclass
class Collection:
    """What has been measured. `last` is the attribution of the last run of two loads, if any.

    `versions`: of the servers whose loads have run, by product.
    """

    runs: list[kit.Run] = field(default_factory=list)
    meta: Meta | None = None
    last: Attribution | None = None
    complete: bool = False
    versions: dict[str, str] = field(default_factory=dict)


def collect(
    host: Host,
    schedule: Schedule,
    into: Collection,
    say: Callable[[str], None],
    *,
    calibration: str | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Does all runs, and adds each to `into` as soon as it is done.

    Before each round the runs' length is adapted to the time that is left. Raises `QjouleError` if
    there is no energy to measure or a run fails; what was measured until then stays in `into`.
    """
    end_s = clock() + schedule.budget_s - SETUP_S
    runs_left, overhead_s = schedule.rounds * len(schedule.runs), OVERHEAD_S
    for number in range(1, schedule.rounds + 1):
        seconds = schedule.seconds_for(end_s - clock(), runs_left, overhead_s)
        begun_s = clock()
        for wanted in schedule.of_round(number):
            time_left = minutes(runs_left * (seconds + overhead_s))
            names = _load_names(host, wanted)
            say(f"round {number} of {schedule.rounds}: {names}; {time_left} left")
            recorded = host.record(wanted, seconds)
            _check_grade(recorded)
            traced = list(zip(wanted, recorded.traced, strict=True))
            run, result = read_run(
                recorded.trace, recorded.span_ns, traced, number=number, calibration=calibration
            )
            into.runs.append(run)
            into.meta = recorded.trace.meta
            if into.last is None or len(wanted) == 2:
                into.last = result
            versions = {
                server.kind: version(server.version) for server in recorded.trace.meta.servers
            }
            into.versions |= {
                host.loads[at].server: versions.get(of.server, "") for at, of in traced
            }
            runs_left -= 1
        overhead_s = max((clock() - begun_s) / len(schedule.runs) - seconds, 0.0)
    into.complete = True


def document_of(
    collection: Collection,
    host: Host,
    schedule: Schedule,
    info: CpuInfo,
    identity: Identity,
    *,
    given: bool = False,
) -> kit.Document:
    """The document of what was measured. There must be a run. `given`: see `kit.Energy`."""
    meta, last = collection.meta, collection.last
    assert meta is not None
    assert last is not None
    domains = tuple(
        dict.fromkeys(domain for domain in last.energy_source.domains if domain in kit.DOMAINS)
    )
    return kit.Document(
        qjoule=version(__version__),
        month=f"{datetime.now(UTC):%Y-%m}",
        complete=collection.complete,
        machine=_machine(info, identity),
        energy=kit.Energy(
            meta.energy.source, meta.energy.grade, given, last.energy_source.main_domain, domains
        ),
        model=kit.Model(last.model.weight, last.model.calibrated, last.model.held_out_error),
        plan=kit.Plan(schedule.rounds, schedule.seconds, schedule.budget_s),
        servers=tuple(
            kit.Server(product, collection.versions.get(product, ""))
            for product in dict.fromkeys(load.server for load in host.loads)
        ),
        absent=host.absent,
        loads=host.loads,
        runs=tuple(collection.runs),
    )


def version(text: str) -> str:
    """The first numbers of a version; empty if it has none."""
    match = _VERSION.search(text)
    return match[0] if match else ""


def _machine(info: CpuInfo, identity: Identity) -> kit.Machine:
    return kit.Machine(
        cpu=plain(info.name),
        vendor=plain(info.vendor),
        family=info.family,
        model=info.model,
        stepping=info.stepping,
        packages=len(info.packages),
        cores=info.cores,
        threads=len(info.cpus),
        hypervisor=info.hypervisor,
        kernel=".".join(version(identity.kernel).split(".")[:2]),
        governor=plain(identity.governor),
    )


def plain(text: str) -> str:
    """A text of the kernel in the form that a kit may hold."""
    return " ".join(_UNPRINTABLE.sub(" ", text).split())[: kit.LONGEST_TEXT]


def _check_grade(recorded: Recorded) -> None:
    info = recorded.trace.meta.energy
    if info.grade not in TESTABLE_GRADES:
        raise QjouleError(
            f"{NOTHING_TO_MEASURE}: the energy here is {info.grade or 'none'} "
            f"({info.source or 'no source'})"
        )


def _load_names(host: Host, wanted: Wanted) -> str:
    return " and ".join(host.loads[at].name for at in wanted) or "at rest"
