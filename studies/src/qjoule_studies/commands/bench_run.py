# SPDX-License-Identifier: Apache-2.0
"""Runs the study of a plan from the command line, and reports how it ended."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from qjoule.api import QjouleError, UsageError
from qjoule.api.command import ending_in_order, say
from qjoule.api.servers import this_machine
from qjoule_studies.cpufreq import SAVED, CpuFrequency
from qjoule_studies.design import Designed, designed
from qjoule_studies.hosting import AlreadyRunning, Host, Started, left
from qjoule_studies.plan import Plan
from qjoule_studies.plan_file import check_options
from qjoule_studies.progress import progress
from qjoule_studies.recording import recorded, unrecorded
from qjoule_studies.runner import Means, failures, run_study
from qjoule_studies.study import Study, open_study
from qjoule_studies.workloads import workload

_SERVERS = "qjoule_studies.servers"


def run_plan(plan: Plan, directory: Path, *, again: bool, cpus: CpuFrequency | None = None) -> int:
    """Runs the remaining runs of a study; returns the exit code: 1 if a run has failed. `cpus`:
    what is set, if its old values are not kept in the directory.

    Raises `QjouleError` or `UsageError` if it cannot be run or continued.
    """
    work = workload(plan.workload)
    check_options(plan, plan.workload, work.defaults)
    design = designed(plan.factors, plan.design, plan.replications.least)
    cpus = cpus or CpuFrequency(directory.absolute() / SAVED)
    cpus.check(plan)
    record = plan.record
    run = unrecorded if record.without_energy else recorded(record)
    host = _host(plan)
    with open_study(directory, plan, design) as study, ending_in_order(), progress(say) as shown:
        for line in _opening_lines(plan, design, study):
            shown.say(line)
        try:
            cpus.restore_from_before()
            means = Means(work, host, run, cpus, shown, _machine())
            run_study(study, plan, design, means, again=again)
        except SystemExit:
            remaining = left(plan, design.combinations, study.runs, again=again)
            shown.say(
                f"stopped after {len(study.runs)} runs, {remaining} are left: give the same "
                "command again, and it goes on"
            )
            raise
        finally:
            try:
                host.close()
            finally:
                cpus.restore()
    failed = failures(study.runs)
    more = f", {failed} failed: --failed-again makes them again" if failed else ""
    traces = "" if record.without_energy else ", each run is a trace in runs/"
    say(f"{directory}: {len(study.runs)} runs{more}; the table is runs.jsonl{traces}")
    return 1 if failed else 0


def _host(plan: Plan) -> Host:
    if plan.target is not None:
        return AlreadyRunning(plan.target, to_record=not plan.record.without_energy)
    servers: Any = importlib.import_module(_SERVERS)
    for name in plan.servers:
        if name not in servers.STARTED:
            names = ", ".join(servers.STARTED)
            raise UsageError(f"no server {name!r} can be started: use {names}")
    return Started(plan, servers.start)


def _opening_lines(plan: Plan, design: Designed, study: Study) -> Iterator[str]:
    """Lines for the user before the study begins."""
    yield from design.notes
    times = plan.replications
    often = f"{times.least}" if times.until is None else f"{times.least} to {times.most}"
    already = f"; {len(study.runs)} runs are made already" if study.runs else ""
    yield f"{study.path}: {plan.workload}, {len(design.combinations)} x {often} runs{already}"


def _machine() -> str:
    try:
        machine = this_machine()
    except QjouleError:
        return ""
    return f"{machine.host}, {machine.cpu}, Linux {machine.kernel}"
