# SPDX-License-Identifier: Apache-2.0
"""What joules cost and emit: the options of commands that show an attribution (see `impact`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

CURRENCY = re.compile(r"(.+):([A-Z]{3})")  #: after what `--price` names


@dataclass(frozen=True)
class Asked:
    """The options as they were given; None: not given."""

    price: str | None = None
    carbon: str | None = None
    pue: float | None = None
    embodied: str | None = None

    @property
    def anything(self) -> bool:
        return any(one is not None for one in (self.price, self.carbon, self.pue, self.embodied))


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --price, --carbon, --pue and --embodied to a command."""
    for option in reversed(
        (
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
    ):
        command = option(command)
    return command
