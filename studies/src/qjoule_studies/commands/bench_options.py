# SPDX-License-Identifier: Apache-2.0
"""Options that the forms of `qjoule bench` share."""

from __future__ import annotations

from pathlib import Path

import click
from msgspec.structs import replace

from qjoule.api.command import known_source
from qjoule_studies.plan import Plan
from qjoule_studies.plan_file import check_plan

output = click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    required=True,
    help="The study's directory: new, or one to go on with.",
)

energy = click.option(
    "--energy",
    metavar="SOURCE",
    callback=known_source,
    help="The energy source, as `qjoule record` takes it. [default: the plan's, auto]",
)

without_energy = click.option(
    "--without-energy",
    is_flag=True,
    help="Record nothing: only times and counts. Needs no root.",
)

failed_again = click.option(
    "--failed-again", is_flag=True, help="Make runs again that failed earlier."
)


def with_energy(plan: Plan, source: str | None, *, without_energy: bool) -> Plan:
    """The plan with the energy options of the command line.

    Raises `UsageError` if the plan then makes no sense.
    """
    record = plan.record
    if source is not None:
        record = replace(record, energy=source)
    if without_energy:
        record = replace(record, without_energy=True)
    changed = replace(plan, record=record)
    check_plan(changed, "the plan")
    return changed
