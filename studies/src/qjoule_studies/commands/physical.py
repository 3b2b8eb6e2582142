# SPDX-License-Identifier: Apache-2.0
"""`qjoule physical`: tests the split of joules against what loads add to the machine's power."""

from __future__ import annotations

from pathlib import Path

import click
from click.core import ParameterSource

from qjoule.api import UsageError
from qjoule.api.command import options

_ROUNDS = 5
#: Options that mean nothing without `--full`, and with it.
_OF_FULL = ("budget", "seconds_per_run", "output")
_NOT_OF_FULL = ("seconds", "as_json")


@click.command(
    short_help="Test the joules of this machine against its counters.",
    epilog="""\b
Examples:
  sudo qjoule physical --rounds 8
  sudo qjoule physical --full -o my-machine.html

\b
Exit code 0: the split agrees with the machine. 1: it is off by more than the
threshold, or that cannot be told, as where no energy counter measures.
With --full, 0: all runs were done, whatever they show.
""",
)
@click.option(
    "--full",
    is_flag=True,
    help="Three kinds of load on two servers, in 20 minutes, into one file "
    "without identifying data.",
)
@click.option(
    "--threshold",
    type=click.FloatRange(min=0, min_open=True),
    default=11.0,
    show_default=True,
    metavar="PCT",
    help="Error of the split that is too much.",
)
@click.option(
    "--rounds",
    type=click.IntRange(3, 100),
    default=None,
    metavar="N",
    help="How often the loads run.  [default: 5, with --full 4]",
)
@options.seconds(1, 600, 5.0, "Time of each load.")
@click.option(
    "--budget",
    type=click.FloatRange(1, 600),
    default=20.0,
    show_default=True,
    metavar="MIN",
    help="Of --full: time of the whole test.",
)
@click.option(
    "--seconds-per-run",
    type=click.FloatRange(0.5, 600),
    metavar="S",
    help="Of --full: time of each load, instead of what the budget allows.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("qjoule-physical.html"),
    show_default=True,
    metavar="FILE",
    help="Of --full: the file that it writes.",
)
@options.energy("As of 'qjoule record'.")
@options.calibration
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(
    context: click.Context,
    /,
    *,
    full: bool,
    threshold: float,
    rounds: int | None,
    seconds: float,
    budget: float,
    seconds_per_run: float | None,
    output: Path,
    energy: str,
    calibration: str | None,
    as_json: bool,
) -> int:
    """Compare the split of two loads that run together with what each adds to the machine's power.

    The loads run on a MariaDB that this command starts, alone and together, for some minutes.
    """
    _check(context, full=full)
    if full:
        from qjoule_studies.commands.physical_full import FullPlan  # noqa: PLC0415 (slow to import)
        from qjoule_studies.commands.physical_full import full as kit  # noqa: PLC0415

        kit_plan = FullPlan(output, 60 * budget, seconds_per_run, rounds, energy, calibration)
        return kit(kit_plan, threshold=threshold / 100)
    from qjoule_studies.commands.physical_plain import physical  # noqa: PLC0415
    from qjoule_studies.physical.experiment import Plan  # noqa: PLC0415

    plan = Plan(rounds or _ROUNDS, seconds, energy, calibration)
    return physical(plan, threshold=threshold / 100, as_json=as_json)


def _check(context: click.Context, *, full: bool) -> None:
    """Raises `UsageError` for an option that would have no effect."""
    on_command_line = {
        name
        for name in (*_OF_FULL, *_NOT_OF_FULL)
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    wrong = [name for name in _OF_FULL if name in on_command_line and not full]
    if wrong:
        raise UsageError(f"{_spelt(wrong[0])} is of the full physical test: add --full")
    wrong = [name for name in _NOT_OF_FULL if name in on_command_line and full]
    if wrong:
        raise UsageError(f"{_spelt(wrong[0])} has no effect with --full: leave it out")


def _spelt(name: str) -> str:
    return "--json" if name == "as_json" else f"--{name.replace('_', '-')}"
