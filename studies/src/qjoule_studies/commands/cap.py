# SPDX-License-Identifier: Apache-2.0
"""`qjoule cap`: joules per call of a running server under limits of power or frequency."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click
import msgspec

from qjoule.api import QjouleError, UsageError
from qjoule.api.command import FACTOR, options, read_runs, say
from qjoule.api.model import IdlePolicy

if TYPE_CHECKING:
    from qjoule_studies.cpufreq import CpuFrequency
    from qjoule_studies.plan import Plan

#: The lock, and values from before. Of the machine, not of a study, so that the next `cap` finds
#: them wherever it works. A start of the machine empties it, and the hardware forgets its limits.
PLACE = Path("/run/qjoule-cap")
SAVED = "limits.json"
_TREE = "powercap:"


@click.command(
    short_help="Joules per call under limits of power or frequency.",
    epilog="""\b
Examples:
  sudo qjoule cap mariadb --watts 60 --watts 80 -o caps
  sudo qjoule cap 812 --max-mhz 1200 --replications 10 -o caps
  sudo qjoule cap --restore

\b
The level that holds now is measured too, and the others are compared with it.
What was interrupted goes on when the same command is given again.
""",
)
@click.argument("server", default="")
@click.option(
    *("--watts", "watts"),
    type=float,
    multiple=True,
    metavar="W",
    help="A power limit of each processor package. Repeatable.",
)
@click.option(
    *("--max-mhz", "mhz"),
    type=float,
    multiple=True,
    metavar="MHZ",
    help="Instead, a greatest frequency of the CPUs. Repeatable.",
)
@click.option(
    "--replications",
    type=click.IntRange(2, 1000),
    default=5,
    show_default=True,
    metavar="N",
    help="How often each level is measured.",
)
@options.seconds(1, 3600, 30.0, "How long each measurement is.")
@click.option(
    "--settle-seconds",
    type=click.FloatRange(0, 600),
    default=10.0,
    show_default=True,
    metavar="S",
    help="Time before each for the level to take effect.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**31),
    default=1,
    show_default=True,
    metavar="N",
    help="Of the order of the levels.",
)
@options.energy("As of 'qjoule record'.")
@options.idle
@click.option("--json", "as_json", is_flag=True, help="A JSON document instead of the table.")
@click.option(
    *("-o", "--output"),
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="The study's directory: new, or one to go on with.",
)
@click.option("--restore", is_flag=True, help="Only put back what a killed `cap` has left.")
def command(
    *,
    server: str,
    watts: tuple[float, ...],
    mhz: tuple[float, ...],
    replications: int,
    seconds: float,
    settle_seconds: float,
    seed: int,
    energy: str,
    idle: str,
    as_json: bool,
    output: Path | None,
    restore: bool,
) -> int:
    """Measure joules per call and p95 latency of SERVER's own load under limits, in random order.

    SERVER is a kind of server, such as mariadb, or the number of its process. Whatever ends the
    command, the limits are put back; after SIGKILL by --restore, or by the next `cap`.
    """
    from qjoule_studies import plan as plans  # noqa: PLC0415 (`--help` stays fast)
    from qjoule_studies.cpufreq import ROOT, CpuFrequency  # noqa: PLC0415
    from qjoule_studies.plan_file import check_plan  # noqa: PLC0415
    from qjoule_studies.power_limit import POWERCAP  # noqa: PLC0415
    from qjoule_studies.study import lock  # noqa: PLC0415

    if os.geteuid() != 0:
        raise QjouleError("only root may set limits: run it with sudo")
    with suppress(OSError):  # the lock says why not
        PLACE.mkdir(mode=0o700, exist_ok=True)
    descriptor = lock(PLACE, "cap")
    try:
        tree = Path(energy.removeprefix(_TREE)) if energy.startswith(_TREE) else POWERCAP
        cpus = CpuFrequency(PLACE / SAVED, ROOT, tree)
        cpus.restore_from_before()
        if restore:
            return 0
        if not server or output is None or bool(watts) == bool(mhz):
            raise UsageError("give SERVER, -o DIR, and either --watts or --max-mhz")
        factor = plans.POWER_LIMIT if watts else plans.MAX_FREQUENCY
        plan = plans.Plan(
            name="cap",
            workload="watch",
            options={"seconds": seconds, "settle_s": settle_seconds},
            target=plans.Running(
                **{"pid": int(server)} if server.isdecimal() else {"flavour": server}
            ),
            factors={factor: watts or mhz},
            design=plans.Design(seed=seed),  # each replication is a block of all levels
            replications=plans.Replications(replications),
            control=plans.Control(settle="off"),
            record=plans.Recording(energy=energy, idle=cast(IdlePolicy, idle)),
        )
        check_plan(plan, "cap")
        cpus.check(plan)
        now = cpus.present(factor)
        levels = tuple(dict.fromkeys((*plan.factors[factor], now)))
        plan = msgspec.structs.replace(plan, factors={factor: levels})
        return _measure(plan, output, cpus, now, as_json=as_json)
    finally:
        os.close(descriptor)


def _measure(plan: Plan, output: Path, cpus: CpuFrequency, now: float, *, as_json: bool) -> int:
    from qjoule.api.traces import Trace  # noqa: PLC0415
    from qjoule_studies import capped  # noqa: PLC0415
    from qjoule_studies.commands.bench_run import run_plan  # noqa: PLC0415
    from qjoule_studies.plan import POWER_LIMIT  # noqa: PLC0415

    (factor,) = plan.factors
    code = run_plan(plan, output, again=True, cpus=cpus)
    runs = [
        capped.measured(
            Trace(output / run["trace"]),
            plan.record.idle,
            *(int(run["replication"]), float(run[FACTOR + factor]), run["power_w"]),
        )
        for run in read_runs(output).to_dict("records")
        if run["status"] == "done"
    ]
    grades = sorted({run.grade for run in runs})
    levels = capped.levels_of(runs, now)
    if grades != ["measured"]:
        other_grades = " and ".join(grades) or capped.UNKNOWN
        say(f"joules are {other_grades}, not measured: they show nothing about a limit")
    if as_json:
        about = {"format": "qjoule.cap/1", "factor": factor, "reference": now, "grades": grades}
        about |= {"idle_policy": plan.record.idle, "levels": msgspec.to_builtins(levels)}
        click.echo(json.dumps(about, indent=1, allow_nan=False))
    else:
        click.echo(capped.table(levels, "W" if factor == POWER_LIMIT else "MHz"), nl=False)
    return code
