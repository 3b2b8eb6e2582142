# SPDX-License-Identifier: Apache-2.0
"""Options of the physical tests, `qjoule doctor --physical` and `--physical --full`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from qjoule.commands import options
from qjoule.errors import UsageError

#: Options that mean nothing without `--physical`, without `--full`, and with it.
_OF_PHYSICAL = ("full", "threshold", "rounds", "seconds", "energy", "calibration")
_OF_FULL = ("budget", "seconds_per_run", "output")
_NOT_OF_FULL = ("seconds", "as_json")

_OPTIONS = (
    click.option(
        "--physical",
        is_flag=True,
        help="Test the joules: two loads on a MariaDB of its own, alone and together. "
        "Some minutes.",
    ),
    click.option(
        "--full",
        is_flag=True,
        help="Of --physical: three kinds of load on two servers, in 20 minutes, into one file "
        "without identifying data.",
    ),
    click.option(
        "--threshold",
        type=click.FloatRange(min=0, min_open=True),
        default=11.0,
        show_default=True,
        metavar="PCT",
        help="Of --physical: error of the split that is too much.",
    ),
    click.option(
        "--rounds",
        type=click.IntRange(3, 100),
        default=None,
        metavar="N",
        help="Of --physical: how often the loads run.  [default: 5, with --full 4]",
    ),
    options.seconds(1, 600, 5.0, "Of --physical: time of each load."),
    click.option(
        "--budget",
        type=click.FloatRange(1, 600),
        default=20.0,
        show_default=True,
        metavar="MIN",
        help="Of --full: time of the whole test.",
    ),
    click.option(
        "--seconds-per-run",
        type=click.FloatRange(0.5, 600),
        metavar="S",
        help="Of --full: time of each load, instead of what the budget allows.",
    ),
    click.option(
        "-o",
        "--output",
        type=click.Path(dir_okay=False, path_type=Path),
        default=Path("qjoule-physical.html"),
        show_default=True,
        metavar="FILE",
        help="Of --full: the file that it writes.",
    ),
    options.energy("Of --physical: as of 'qjoule record'."),
    options.calibration,
)


def physical_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds all options of the physical tests, in this order of `--help`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def check(context: click.Context, *, physical: bool, full: bool) -> None:
    """Raises `UsageError` for an option that would have no effect."""
    given = {
        name
        for name in (*_OF_PHYSICAL, *_OF_FULL, *_NOT_OF_FULL)
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    wrong = [name for name in _OF_PHYSICAL if name in given and not physical]
    if wrong:
        raise UsageError(f"{_spelt(wrong[0])} is of the physical test: add --physical")
    wrong = [name for name in _OF_FULL if name in given and not full]
    if wrong:
        raise UsageError(f"{_spelt(wrong[0])} is of the full physical test: add --full")
    wrong = [name for name in _NOT_OF_FULL if name in given and full]
    if wrong:
        raise UsageError(f"{_spelt(wrong[0])} has no effect with --full: leave it out")


def _spelt(name: str) -> str:
    return "--json" if name == "as_json" else f"--{name.replace('_', '-')}"
