# SPDX-License-Identifier: Apache-2.0
"""Groups of options, and the dataclasses in which a command gets them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from typing import Any

import click
from click.core import ParameterSource

from qjoule.commands import options
from qjoule.commands.options import Command, Option
from qjoule.model import IdlePolicy

_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h)?")
_SECONDS = {None: 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
LEAST_S, MOST_S = 5.0, 86_400.0
_ENERGY = re.compile(r"query\s*>\s*(\d+(?:\.\d+)?)\s*(mJ|J|kJ)")
_JOULES = {"mJ": 1e-3, "J": 1.0, "kJ": 1e3}
SHAPE = "shape-energy"


def as_dataclass(kind: Callable[..., Any], argument: str, **fixed: Any) -> Option:
    """Passes the parameters that are fields of the dataclass `kind` to the command as one argument.

    Put it below the options. `fixed`: fields without an option.
    """
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]

    def decorate(command: Command) -> Command:
        @wraps(command)
        def run(*arguments: Any, **values: Any) -> Any:
            of_kind = {name: values.pop(name) for name in names & values.keys()}
            return command(*arguments, **values, **{argument: kind(**of_kind, **fixed)})

        return run

    return decorate


def is_given(*parameters: str) -> bool:
    """Returns true if one of these parameters is on the command line."""
    source = click.get_current_context().get_parameter_source
    return any(source(name) is ParameterSource.COMMANDLINE for name in parameters)


def _combined(*group: Option) -> Option:
    def decorate(command: Command) -> Command:
        for option in reversed(group):
            command = option(command)
        return command

    return decorate


@dataclass(frozen=True)
class ResultOptions:
    """Selects joules, and how they are apportioned. `by`: keys, separated by commas."""

    by: str
    idle: IdlePolicy
    calibration: str | None = None
    memory: str | None = None
    where: tuple[str, ...] = ()
    absolute: bool = False
    max_values: int = 10_000
    without_stolen: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(key.strip() for key in self.by.split(","))


@dataclass(frozen=True)
class Costs:
    """Cost and emission options as given (`impact`); None if absent."""

    price: str | None = None
    carbon: str | None = None
    pue: float | None = None
    embodied: str | None = None

    @property
    def anything(self) -> bool:
        return any(
            value is not None for value in (self.price, self.carbon, self.pue, self.embodied)
        )


costs = _combined(
    click.option(
        "--price",
        type=click.Path(readable=False),
        metavar="N/kWh[:EUR]|CSV[:EUR]",
        help="Also show kWh and money: a price for all, or a file with lines "
        "time,price_per_kwh (ISO 8601 with zone).",
    ),
    click.option(
        "--carbon",
        type=click.Path(readable=False),
        metavar="G|CSV",
        help="Also show kWh and carbon: grams of CO2e per kWh, or a file with lines "
        "time,gco2e_per_kwh.",
    ),
    click.option(
        "--pue",
        type=click.FloatRange(1.0, 10.0),
        metavar="N",
        help="Energy of the site per energy of its machines; it multiplies all of these.",
    ),
    click.option(
        "--embodied",
        metavar="G|G/h",
        help="Embodied carbon M of the machine in grams, for the whole trace or per hour; "
        "shared by energy. Carbon per call is then the SCI of ISO/IEC 21031:2024.",
    ),
)


@dataclass(frozen=True)
class Triggers:
    """Triggers of a flight recorder. `query_j`: saves for queries above so many J, or None."""

    shapes: bool = False
    query_j: float | None = None

    def __bool__(self) -> bool:
        return self.shapes or self.query_j is not None


@dataclass(frozen=True)
class Keeping:
    """Options of a flight recorder. `keep_s`: 0 for none; `pause_s`: 0 for `keep_s`."""

    keep_s: float
    triggers: Triggers
    saves: int
    pause_s: float

    def __bool__(self) -> bool:
        return self.keep_s > 0


def _seconds(_context: click.Context, _parameter: click.Parameter, text: str | None) -> float:
    """Parses `90s`, `5m` or `1h` as seconds; 0 if there is no text."""
    if text is None:
        return 0.0
    match = _TIME.fullmatch(text.strip())
    seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if not match or not LEAST_S <= seconds <= MOST_S:
        raise click.BadParameter(f"'{text}' is no time from 5s to 24h, as in 90s, 5m or 1h")
    return seconds


def _triggers(
    _context: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]
) -> Triggers:
    shapes, query_j = False, None
    for text in texts:
        if text == SHAPE:
            shapes = True
        elif (match := _ENERGY.fullmatch(text.strip())) and float(match[1]) > 0:
            query_j = float(match[1]) * _JOULES[match[2]]
        else:
            raise click.BadParameter(f"'{text}' is neither {SHAPE} nor as in 'query>5J'")
    return Triggers(shapes, query_j)


keeping = _combined(
    click.option(
        "--keep",
        "keep_s",
        metavar="TIME",
        callback=_seconds,
        help="Flight recorder: hold only the last 90s, 5m, 1h, … until `qjoule dump`, the key "
        "s, the signal USR1 or a trigger saves them. --spool-mb bounds what is held.",
    ),
    click.option(
        "--trigger",
        "triggers",
        multiple=True,
        metavar="WHAT",
        callback=_triggers,
        help=f"With --keep, save by itself: '{SHAPE}', when a statement's J/call leaves its "
        "own 95 % interval, or 'query>5J', when a query took more; may be repeated.",
    ),
    click.option(
        "--saves",
        type=click.IntRange(1, 1000),
        metavar="N",
        default=20,
        show_default=True,
        help="Save at most so many parts.",
    ),
    click.option(
        "--pause",
        "pause_s",
        metavar="TIME",
        callback=_seconds,
        help="After a save, triggers save nothing for this long. [default: what --keep says]",
    ),
)


#: What is written during the recording, and when it becomes tables.
capture = _combined(
    click.option(
        "--convert",
        "conversion",
        type=click.Choice(["end", "later"]),
        default="end",
        show_default=True,
        help="When to make the tables: once recording stops, or by `qjoule convert`.",
    ),
    click.option(
        "--spool-mb",
        type=click.IntRange(1, 1 << 30),
        metavar="MB",
        default=16384,
        show_default=True,
        help="Stop recording when this much is captured: some 170 bytes per query.",
    ),
    click.option(
        "--compress",
        is_flag=True,
        help="Compress what is captured: a sixth of the size for some 0.3 us of CPU per query.",
    ),
)


@dataclass(frozen=True)
class Quick:
    """The options of a quick run. `rise`: in percent of the machine's CPUs."""

    seconds: float
    rise: float
    waiting: float
    most_cores: int | None
    most_watts: float | None
    anew: bool


quick = _combined(
    click.option(
        "--quick",
        is_flag=True,
        help="On a machine in use: 60 seconds beside its load, on at most half of the idle cores.",
    ),
    options.seconds(15, 600, 60.0, "Of --quick: how long it may take."),
    options.more_than_before(
        "--rise",
        100,
        15.0,
        "Of --quick: stop if other programs use so much more of the CPUs than at the start.",
    ),
    options.waiting("Of --quick: stop"),
    click.option(
        "--most-cores",
        type=click.IntRange(min=1),
        metavar="N",
        help="Of --quick: load no more cores than this.",
    ),
    click.option(
        "--most-watts",
        type=click.FloatRange(min=0, min_open=True),
        metavar="W",
        help="Of --quick: stop if the packages draw so much more than at the start.",
    ),
    click.option(
        "--anew", is_flag=True, help="Of --quick: ignore what an earlier calibration knows."
    ),
)
