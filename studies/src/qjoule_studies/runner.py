# SPDX-License-Identifier: Apache-2.0
"""Runs a study to its end: run after run, whatever fails in between."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from qjoule.api import QjouleError, UsageError
from qjoule.api.command import Run
from qjoule_studies import rows
from qjoule_studies.client import ClientReport, Job, in_words
from qjoule_studies.cpufreq import CpuFrequency, hash_once, settle
from qjoule_studies.design import Designed, Levels, Slot
from qjoule_studies.hosting import Host, key, left, slots
from qjoule_studies.plan import Plan, is_of_machine
from qjoule_studies.progress import Progress
from qjoule_studies.recording import CUT_SHORT, NotRecorded, RunFailed, Runs, unrecorded
from qjoule_studies.rows import Figures, figures
from qjoule_studies.study import Study
from qjoule_studies.workload import Target, Value, Workload

IN_A_ROW = 3  #: runs that fail one after the other end the study
UNSETTLED = "unsettled"
_WORDS_MAX = 1_000  #: of a server or a driver, in a line of the table


@dataclass(frozen=True)
class Means:
    """What a study is run with.

    Attributes:
        run: a client, recorded or not.
        beside: a client that is never recorded: warm-up, and the control on the server.
        control: the control workload that needs no server; how long it took.
    """

    workload: Workload
    host: Host
    run: Runs
    cpus: CpuFrequency
    progress: Progress
    machine: str
    beside: Runs = unrecorded
    control: Callable[[], float] = hash_once


def run_study(
    study: Study, plan: Plan, design: Designed, means: Means, *, again: bool = False
) -> int:
    """Makes the runs that are left; how many of the study's runs have failed.

    Args:
        again: those that have failed are made again.

    Raises:
        QjouleError: several runs in a row failed, nothing can be recorded here, or the disk is
            full. What was made is kept, and the same call goes on.
    """
    maker = _Maker(study, plan, means)
    in_a_row = 0
    for slot in slots(plan, design.combinations, study.runs, again=again):
        remaining = left(plan, design.combinations, study.runs, again=again)
        run = maker.make(slot, remaining)
        in_a_row = in_a_row + 1 if run["status"] == "failed" else 0
        if in_a_row == IN_A_ROW:
            raise QjouleError(
                f"{IN_A_ROW} runs in a row failed, the last one because: {run['problem']}; "
                "the same command goes on after them"
            )
    return failures(study.runs)


def failures(runs: list[Run]) -> int:
    """The number of runs that have failed and were not repeated successfully."""
    last = {(run["replication"], key(run["factors"])): run["status"] for run in runs}
    return sum(status == "failed" for status in last.values())


class _Maker:
    def __init__(self, study: Study, plan: Plan, means: Means) -> None:
        self._study = study
        self._plan = plan
        self._means = means

    def make(self, slot: Slot, remaining: int) -> Run:
        """Makes one run and adds its line."""
        number = len(self._study.runs) + 1
        self._study.clear(number)
        self._means.progress.begins(slot, number, remaining)
        start = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        head = rows.Head(number, slot, start, self._means.machine, self._plan.record.idle)
        flags: list[str] = []
        try:
            run = self._completed(head, flags)
        except (QjouleError, OSError) as error:
            self._stop_if_hopeless(error)
            run = rows.failed(head, self._problem(error), tuple(flags), self._kept_trace(number))
        self._study.add(run)
        self._means.progress.ended(run)
        return run

    def _completed(self, head: rows.Head, flags: list[str]) -> Run:
        means, levels = self._means, head.slot.levels
        means.cpus.set(levels)
        target, is_new = means.host.ready(levels)
        self._check(target)
        options = self._options(levels)
        self._prepare(target, options)
        if is_new:
            self._warm_up(target, options)
        if not self._settled(target, options):
            flags.append(UNSETTLED)
        trace = self._study.trace(head.number)
        job = Job(self._plan.workload, target, options)
        report = means.run(job, target.pid, trace, self._plan.limit_s)
        if means.host.has_ended:
            raise RunFailed(CUT_SHORT)  # its client may have counted errors, and gone on
        measured = Figures(idle_policy=head.idle)
        if not self._plan.record.without_energy:
            measured = figures(trace, report.begin_ns, report.end_ns, self._plan.record.idle)
        self._study.keep_answer(head.number, _answer(report))
        return rows.done(head, report, measured, tuple(flags), self._kept_trace(head.number))

    def _options(self, levels: Levels) -> dict[str, Value]:
        """Complete: the workload's defaults, the plan's, and the levels of this run."""
        chosen = {name: level for name, level in levels.items() if not is_of_machine(name)}
        return {**self._means.workload.defaults, **self._plan.options, **chosen}

    def _check(self, target: Target) -> None:
        flavours = self._means.workload.flavours
        if target.flavour not in flavours:
            names = ", ".join(sorted(flavours))
            raise UsageError(f"{self._plan.workload} is not for {target.flavour}: use {names}")

    def _prepare(self, target: Target, options: dict[str, Value]) -> None:
        try:
            self._means.workload.prepare(target, options)
        except (QjouleError, OSError):
            raise
        except Exception as error:  # a driver's own
            raise RunFailed(f"it cannot be prepared: {in_words(error)}") from error

    def _warm_up(self, target: Target, options: dict[str, Value]) -> None:
        wanted, done_s, operations = self._plan.warm_up, 0.0, 0
        while done_s < wanted.seconds or operations < wanted.operations:
            outcome = self._beside(target, options).outcome
            if not outcome.operations or outcome.wall_s <= 0:
                raise RunFailed("the warm-up did nothing that succeeded")
            done_s += outcome.wall_s
            operations += outcome.operations
            self._prepare(target, options)  # what it inserted is no part of the first run

    def _settled(self, target: Target, options: dict[str, Value]) -> bool:
        control = self._plan.control
        if control.settle == "off":
            return True
        on_server = control.work == "server"
        fixed = self._control_options()
        settled = settle(
            control, (lambda: self._timed(target, fixed)) if on_server else self._means.control
        )
        if on_server:
            self._prepare(target, options)
        if not settled.settled and control.settle == "refuse":
            raise RunFailed(f"not made, for the machine does not settle: {settled.words}")
        return settled.settled

    def _control_options(self) -> dict[str, Value]:
        """Options of the control work, the same in every run: a factor has its first level."""
        return self._options({name: levels[0] for name, levels in self._plan.factors.items()})

    def _timed(self, target: Target, options: dict[str, Value]) -> float:
        self._prepare(target, options)
        outcome = self._beside(target, options).outcome
        if not outcome.operations:
            raise RunFailed("the control workload did nothing that succeeded")
        return outcome.wall_s / outcome.operations

    def _beside(self, target: Target, options: dict[str, Value]) -> ClientReport:
        job = Job(self._plan.workload, target, options)
        return self._means.beside(job, target.pid, self._study.path, self._plan.limit_s)

    def _stop_if_hopeless(self, error: Exception) -> None:
        """Raises `QjouleError` where the next run would fail too, or no line can be written."""
        if _says_full(error) or self._study.is_full():
            raise self._study.full() from error
        if self._study.runs:
            return
        if isinstance(error, NotRecorded) and not self._means.host.has_ended:
            raise QjouleError(
                f"recording does not begin: {error}; leave the joules out with --without-energy"
            ) from error
        if isinstance(error, QjouleError) and not isinstance(error, RunFailed):
            raise error  # no such server, no such option: nothing has run yet

    def _problem(self, error: Exception) -> str:
        message = in_words(error)[:_WORDS_MAX]
        return f"the server ended: {message}" if self._means.host.has_ended else message

    def _kept_trace(self, number: int) -> str:
        trace = self._study.trace(number)
        return str(trace.relative_to(self._study.path)) if trace.is_dir() else ""


def _says_full(error: Exception) -> bool:
    """Whether an error means a full disk: our own, or the recorder's, which gives it in words."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return any(os.strerror(number) in str(error) for number in (errno.ENOSPC, errno.EDQUOT))


def _answer(report: ClientReport) -> dict[str, Any]:
    return asdict(report)
