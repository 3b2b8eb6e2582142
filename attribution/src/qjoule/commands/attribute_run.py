# SPDX-License-Identifier: Apache-2.0
"""The implementation of `qjoule attribute`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import click
import pyarrow as pa

from qjoule.commands import impact
from qjoule.commands.conversion import readable
from qjoule.commands.option_groups import Costs, ResultOptions
from qjoule.commands.say import say
from qjoule.engine.accounts import with_ids
from qjoule.engine.attribute import AttributionRequest, Observer, attributed
from qjoule.engine.explain import explain, find_row
from qjoule.engine.keys import check_keys, selection
from qjoule.engine.recorded import recorded_ids
from qjoule.errors import QjouleError, UsageError
from qjoule.lazy_import import leave_masks_out
from qjoule.machine import active_memory
from qjoule.machine.active_calibration import for_trace
from qjoule.model.arrays import Segments
from qjoule.model.combine_results import combine_results
from qjoule.model.fit.cells import Cell
from qjoule.model.result import Attribution, TracePart
from qjoule.model.same_total import with_total_error
from qjoule.model.tag_values import bound_tags
from qjoule.process import keep_freed_memory
from qjoule.reporters.explain import render as render_explanation
from qjoule.trace.reader import Trace
from qjoule.trace.several import counted_twice, open_several

#: Keys whose values are numbers within one recording only.
OF_ONE_TRACE = ("session", "thread")


def run(
    traces: tuple[Path, ...], result_options: ResultOptions, costs: Costs, *, ids: bool
) -> Attribution:
    """Attributes the joules of these traces. Raises UsageError and QjouleError."""
    keep_freed_memory()
    leave_masks_out()
    opened = open_several(readable(traces))
    keys, selected = result_options.keys, selection(result_options.where)
    used = {*keys, *(key for key, _ in selected.wanted)}
    if len(opened) > 1 and (local := [key for key in OF_ONE_TRACE if key in used]):
        raise UsageError(f"{local[0]} is a number of one trace: leave it out, or give one trace")
    recorded = recorded_ids(opened.values())
    if ids and "fingerprint" not in keys:
        raise UsageError("--ids are of statements: group by fingerprint, with --by")
    if ids and not recorded:
        raise QjouleError("the trace has no ids of other tools: record it with --ids")
    check_keys(keys)  # before the attribution, which takes long

    with progress(sum(trace.rows("segments") for trace in opened.values())) as step:
        parts = [
            TracePart(
                name,
                attributed(
                    trace,
                    request_of(trace, result_options),
                    _Progress(step),
                    _memory_updater(trace, result_options.memory),
                ),
            )
            for name, trace in opened.items()
        ]
    whole = (
        combine_results(parts, counted_twice(opened)) if len(parts) > 1 else parts[0].attribution
    )
    whole = with_total_error(whole) if result_options.absolute else whole
    whole = replace(whole, impact=impact.factors(costs, opened, whole))
    return bound_tags(with_ids(whole, recorded), result_options.max_values)


def request_of(trace: Trace, result_options: ResultOptions) -> AttributionRequest:
    """Builds the attribution request from the options. Raises `UsageError`, `QjouleError`."""
    return AttributionRequest(
        check_keys(result_options.keys),
        result_options.idle,
        calibrated=for_trace(trace, result_options.calibration, result_options.memory),
        where=selection(result_options.where),
        without_stolen=result_options.without_stolen,
    )


def explained(traces: tuple[Path, ...], result_options: ResultOptions, which: str) -> str:
    """Explains as text how the joules of the row `which` came about. The memory is only read.

    Raises:
        UsageError: there are several traces, or no such row.
    """
    opened = list(open_several(readable(traces)).values())
    if len(opened) > 1:
        raise UsageError("--explain is about a row of one trace: give one")
    request = request_of(opened[0], result_options)
    result = attributed(opened[0], request)
    number, row = find_row(result, which)
    return render_explanation(result, number, row, explain(opened[0], request, row))


class _Progress(Observer):
    """Calls `step`, unless it is None, with the number of segments of each finished batch."""

    def __init__(self, step: Callable[[int], None] | None) -> None:
        self._step = step

    def read(self, table: pa.Table, _segments: Segments) -> None:
        if self._step:
            self._step(table.num_rows)


def _memory_updater(trace: Trace, choice: str | None) -> Callable[[tuple[Cell, ...]], None]:
    """Returns a function that adds a trace's evidence to the machine's memory."""
    path = active_memory.where_to_extend(trace, choice)

    def remember(cells: tuple[Cell, ...]) -> None:
        if path is not None:
            try:
                active_memory.add(path, cells, active_memory.identity_of(trace))
            except QjouleError as error:
                say(f"the memory is not extended: {error}")

    return remember


@contextmanager
def progress(segments: int) -> Iterator[Callable[[int], None] | None]:
    """Yields the update function of a progress bar on standard error, or None without a
    terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    with click.progressbar(length=segments, label="attributing", file=sys.stderr) as bar:
        yield bar.update
