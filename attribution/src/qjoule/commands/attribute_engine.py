# SPDX-License-Identifier: Apache-2.0
"""`qjoule attribute --engine`: attributes traces in this process, or by a cluster's workers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click

from qjoule.engine.attribute import Asked, attribute
from qjoule.errors import QjouleError, UsageError
from qjoule.fleet.attribution import Found, Order, Workers, attributed
from qjoule.fleet.cluster import dask_workers
from qjoule.machine import memory_in_force
from qjoule.model.fit.cells import Cell
from qjoule.model.result import TracePart
from qjoule.trace.reader import Trace

ENGINES = ("local", "dask")


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--engine`, `--scheduler`, `--workers`."""
    for option in (
        click.option(
            "--workers",
            type=click.IntRange(1, 1024),
            metavar="N",
            help="With --engine dask: start N processes on this machine. [default: one per CPU]",
        ),
        click.option(
            "--scheduler",
            metavar="ADDRESS",
            help="With --engine dask: the Dask cluster that does the work, such as "
            "tls://scheduler:8786. Its workers must reach the traces under the same paths.",
        ),
        click.option(
            "--engine",
            type=click.Choice(ENGINES),
            default="local",
            show_default=True,
            help="Who does the work: this process, or the workers of Dask. The result is the same.",
        ),
    ):
        command = option(command)
    return command


@dataclass(frozen=True)
class Engine:
    """The options; what they ask for was not started yet."""

    name: str
    scheduler: str | None
    workers: int | None

    def __post_init__(self) -> None:
        """Raises `UsageError` for options that do not go together."""
        if self.name != "dask" and (self.scheduler or self.workers):
            raise UsageError("--scheduler and --workers are of --engine dask")
        if self.scheduler and self.workers:
            raise UsageError("give --scheduler or --workers: a cluster has workers of its own")

    @contextmanager
    def started(self) -> Iterator[Workers | None]:
        """The workers; None: this process."""
        if self.name != "dask":
            yield None
            return
        count = self.workers or len(os.sched_getaffinity(0))
        with dask_workers(self.scheduler, count) as workers:
            yield workers


#: Where a trace's evidence goes, and what each trace is asked for.
Remember = Callable[[tuple[Cell, ...]], None]


def attribute_all(
    opened: dict[str, Trace],
    engine: Engine,
    asked: Callable[[Trace], Asked],
    remembering: Callable[[Trace], Remember],
    *,
    chained: bool,
    step: Callable[[int], None] | None,
) -> list[TracePart]:
    """Attributes the traces in order. `chained`: each may be asked for what the traces before it
    have told, so it has to wait for them. `step`: called with numbers of segments that are done."""
    with engine.started() as workers:
        if workers is None:
            return [
                TracePart(name, _here(trace, asked(trace), remembering(trace), step))
                for name, trace in opened.items()
            ]

        def done(trace: Trace) -> None:
            if step:
                step(trace.rows("segments"))

        found: list[Found] = []
        for traces in [[one] for one in opened.values()] if chained else [[*opened.values()]]:
            orders = [Order(trace, asked(trace)) for trace in traces]
            some = attributed(orders, workers, done)
            for trace, (_, cells) in zip(traces, some, strict=True):
                remembering(trace)(cells)
            found += some
        return [TracePart(name, one[0]) for name, one in zip(opened, found, strict=True)]


def _here(
    trace: Trace, asked: Asked, remember: Remember, step: Callable[[int], None] | None
) -> Any:
    return attribute(
        trace,
        asked.by,
        asked.idle,
        asked.coefficients,
        step,
        calibrated=asked.calibrated,
        where=asked.where,
        learned=remember,
    )


def remembering(trace: Trace, choice: str | None, say: Callable[[str], None]) -> Remember:
    """Adds the evidence of a trace to the machine's memory, or says why that fails."""
    path = memory_in_force.where_to_extend(trace, choice)

    def told(cells: tuple[Cell, ...]) -> None:
        if path is not None:
            try:
                memory_in_force.add(path, cells, memory_in_force.identity_of(trace))
            except QjouleError as error:
                say(f"the memory is not extended: {error}")

    return told
