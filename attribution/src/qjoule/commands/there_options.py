# SPDX-License-Identifier: Apache-2.0
"""The options with which `record` has an agent elsewhere record."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from qjoule.commands.desk import Desk, desk_options
from qjoule.errors import UsageError

ORDERS = ("start", "stop", "save", "fetch", "list")
_OF_USE = frozenset({"output", "duration", "order", "recording"})


def there_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options; with --host, `function` is not called."""

    @functools.wraps(function)
    def wrapped(
        *, desk: Desk | None, order: str | None, recording: str | None, **others: Any
    ) -> Any:
        if desk is None:
            if order or recording:
                raise UsageError("--order and --recording are for --host")
            return function(**others)
        desk.check(click.get_current_context(), _OF_USE)
        if recording and order != "fetch":
            raise UsageError("--recording is for --order fetch")
        from qjoule.commands.record_there import There  # noqa: PLC0415 - takes TLS along

        with desk.connection() as (connection, name):
            there = There(connection, name)
            return there.follow(order, others["output"], others["duration"], recording)

    for option in (
        click.option("--recording", metavar="NAME", help="With --order fetch: this one."),
        click.option(
            "--order",
            type=click.Choice(ORDERS),
            help="With --host: only start, stop, or fetch (the newest, unless --recording), only "
            "save what the flight recorder holds, or list. [default: start, wait, fetch]",
        ),
    ):
        wrapped = option(wrapped)
    return desk_options(wrapped)
