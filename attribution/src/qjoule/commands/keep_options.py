# SPDX-License-Identifier: Apache-2.0
"""Options of `qjoule record` for a flight recorder."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h)?")
_SECONDS = {None: 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
LEAST_S, MOST_S = 5.0, 86_400.0
_ENERGY = re.compile(r"query\s*>\s*(\d+(?:\.\d+)?)\s*(mJ|J|kJ)")
_JOULES = {"mJ": 1e-3, "J": 1.0, "kJ": 1e3}
SHAPE = "shape-energy"


@dataclass(frozen=True)
class Triggers:
    """What saves by itself. `query_j`: a query above so much energy; None: none does."""

    shapes: bool = False
    query_j: float | None = None

    def __bool__(self) -> bool:
        return self.shapes or self.query_j is not None


@dataclass(frozen=True)
class Keeping:
    """A flight recorder as the user asked for it."""

    keep_s: float
    triggers: Triggers
    saves: int
    pause_s: float


def _seconds(
    _context: click.Context, _parameter: click.Parameter, text: str | None
) -> float | None:
    """Seconds of `90s`, `5m` or `1h`."""
    if text is None:
        return None
    found = _TIME.fullmatch(text.strip())
    seconds = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    if not found or not LEAST_S <= seconds <= MOST_S:
        raise click.BadParameter(f"'{text}' is no time from 5s to 24h, as in 90s, 5m or 1h")
    return seconds


def _triggers(
    _context: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]
) -> Triggers:
    shapes, query_j = False, None
    for text in texts:
        if text == SHAPE:
            shapes = True
        elif (found := _ENERGY.fullmatch(text.strip())) and float(found[1]) > 0:
            query_j = float(found[1]) * _JOULES[found[2]]
        else:
            raise click.BadParameter(f"'{text}' is neither {SHAPE} nor as in 'query>5J'")
    return Triggers(shapes, query_j)


def keep_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the parameters `keep_s`, `triggers`, `saves` and `pause_s`."""
    for option in (
        click.option(
            "--pause",
            "pause_s",
            metavar="TIME",
            callback=_seconds,
            help="After a save, triggers save nothing for this long. [default: what --keep says]",
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
            "--trigger",
            "triggers",
            multiple=True,
            metavar="WHAT",
            callback=_triggers,
            help=f"With --keep, save by itself: '{SHAPE}', when a statement's J/call leaves its "
            "own 95 % interval, or 'query>5J', when a query took more; may be repeated.",
        ),
        click.option(
            "--keep",
            "keep_s",
            metavar="TIME",
            callback=_seconds,
            help="Flight recorder: hold only the last 90s, 5m, 1h, … until `qjoule dump`, the key "
            "s, the signal USR1 or a trigger saves them. --spool-mb bounds what is held.",
        ),
    ):
        command = option(command)
    return command
