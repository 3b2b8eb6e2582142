# SPDX-License-Identifier: Apache-2.0
"""Runs a kit's schedule on a host, and makes its document from what has been measured so far."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from qjoule.api import QjouleError, __version__
from qjoule.api.model import Attribution
from qjoule.api.servers import CpuInfo, Identity
from qjoule.api.traces import Meta
from qjoule_studies.physical.experiment import NOTHING_TO_MEASURE, TESTABLE_GRADES
from qjoule_studies.physical.kit import document as kit
from qjoule_studies.physical.kit.host import Host, Recorded
from qjoule_studies.physical.kit.readings import read_run
from qjoule_studies.physical.kit.schedule import OVERHEAD_S, SETUP_S, Schedule, Wanted, minutes

_VERSION = re.compile(r"\d{1,4}(\.\d{1,4}){0,2}")
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]+")


@dataclass
class Collection:
    """What has been measured. `last` is the attribution of the last run.

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
    left, overhead_s = schedule.rounds * len(schedule.runs), OVERHEAD_S
    for number in range(1, schedule.rounds + 1):
        seconds = schedule.seconds_for(end_s - clock(), left, overhead_s)
        begun_s = clock()
        for wanted in schedule.of_round(number):
            rest = minutes(left * (seconds + overhead_s))
            say(f"round {number} of {schedule.rounds}: {_words(host, wanted)}; {rest} left")
            recorded = host.record(wanted, seconds)
            _check_grade(recorded)
            traced = list(zip(wanted, recorded.traced, strict=True))
            run, result = read_run(
                recorded.trace, recorded.span_ns, traced, number=number, calibration=calibration
            )
            into.runs.append(run)
            into.meta, into.last = recorded.trace.meta, result
            known = {one.kind: version(one.version) for one in recorded.trace.meta.servers}
            into.versions |= {host.loads[at].server: known.get(of.server, "") for at, of in traced}
            left -= 1
        overhead_s = max((clock() - begun_s) / len(schedule.runs) - seconds, 0.0)
    into.complete = True


def made(
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
    domains = tuple(dict.fromkeys(one for one in last.energy_source.domains if one in kit.DOMAINS))
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


def version(words: str) -> str:
    """The first numbers of a version; empty if it has none."""
    match = _VERSION.search(words)
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


def plain(words: str) -> str:
    """A text of the kernel in the form that a kit may hold."""
    return " ".join(_UNPRINTABLE.sub(" ", words).split())[: kit.LONGEST_TEXT]


def _check_grade(recorded: Recorded) -> None:
    info = recorded.trace.meta.energy
    if info.grade not in TESTABLE_GRADES:
        raise QjouleError(
            f"{NOTHING_TO_MEASURE}: the energy here is {info.grade or 'none'} "
            f"({info.source or 'no source'})"
        )


def _words(host: Host, wanted: Wanted) -> str:
    return " and ".join(host.loads[at].name for at in wanted) or "at rest"
