# SPDX-License-Identifier: Apache-2.0
"""Loads the runs for `qjoule compare`, and refuses those that are not comparable."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import click

from qjoule.commands.conversion import readable
from qjoule.engine.attribute import attribute
from qjoule.errors import QjouleError
from qjoule.machine.active_calibration import for_trace
from qjoule.model.coefficients import IdlePolicy
from qjoule.model.gpsup import Form
from qjoule.model.repeated import Difference, RunForms, differences, repeated_recording
from qjoule.process import as_given
from qjoule.reporters.json_report import forms_from_json, run_forms
from qjoule.trace.reader import Trace


def load_runs(
    paths: Sequence[Path], calibration: str | None = None, idle: str = "separate"
) -> list[RunForms]:
    """Loads the runs of `paths`: traces, or JSON of `attribute`, whose options are already fixed.

    Raises:
        QjouleError: a run cannot be read, or has no queries.
    """
    with _with_progress(paths) as opened:
        runs = [_load(path, calibration, idle) for path in opened]
    for run in runs:
        if not run.forms:
            raise QjouleError(
                f"{run.name} has no queries, so there is nothing to compare: see "
                f"`qjoule attribute`, and `qjoule doctor` for why"
            )
    return runs


def _load(path: Path, calibration: str | None, idle: str) -> RunForms:
    if path.is_dir():
        trace = Trace(*readable([path]))
        calibrated = for_trace(trace, calibration)
        attribution = attribute(trace, idle=cast(IdlePolicy, idle), calibrated=calibrated)
        return run_forms(attribution, as_given(str(path)))
    try:
        return forms_from_json(path.read_bytes(), as_given(str(path)))
    except OSError as error:
        raise QjouleError(f"cannot read {path}: {error.strerror}") from error


@contextmanager
def _with_progress(paths: Sequence[Path]) -> Iterator[Iterator[Path]]:
    """Yields the paths, with a progress bar if standard error is a terminal."""
    if len(paths) < 3 or not sys.stderr.isatty():
        yield iter(paths)
        return
    with click.progressbar(paths, label="attributing", file=sys.stderr) as bar:
        yield iter(bar)


def check(a: Sequence[RunForms], b: Sequence[RunForms], *, across: bool) -> list[Difference]:
    """Returns differences of properties that should be equal; only `across` allows any.

    Raises:
        QjouleError: there are differences without `across`, or a recording would count twice.
    """
    for side, runs in (("A", a), ("B", b)):
        if repeated := repeated_recording(runs):
            raise QjouleError(
                f"{repeated[0]} and {repeated[1]} are one recording: as two runs of {side} it "
                "would pretend a spread that is none"
            )
    both = {run.recording for run in a} & {run.recording for run in b}
    if both and [run.recording for run in a] != [run.recording for run in b]:
        name = next(run.name for run in b if run.recording in both)
        raise QjouleError(
            f"{name} is on both sides: leave it out of one, or give both sides the same runs in "
            "the same order, to compare statements of theirs with --pair"
        )
    differing = differences([*a, *b])
    if differing and not across:
        names = ", ".join(difference.what for difference in differing[1:])
        others = f" (and in {names})" if names else ""
        raise QjouleError(
            f"the runs are not comparable: {differing[0]}{others}; --across compares them all "
            "the same"
        )
    return differing


def statements(runs: Sequence[RunForms]) -> list[Form]:
    """Returns every statement of the runs once, in order of first appearance."""
    by_name: dict[str, Form] = {}
    for run in runs:
        for form in run.forms:
            by_name.setdefault(form.name, form)
    return list(by_name.values())


def notes(a: Sequence[RunForms], b: Sequence[RunForms]) -> list[str]:
    """Returns notes for the reader on how the runs were made."""
    lines = [f"{run.name}: {problem}" for run in (*a, *b) for problem in run.problems]
    if len(a) < 2 or len(b) < 2:
        lines.append(
            "one run on a side: its interval is of that run, not of the next one; give several, "
            "A1 A2 A3 --vs B1 B2 B3, for a verdict that holds for others"
        )
    elif all(run.start for run in (*a, *b)):
        first, last = (min(run.start for run in runs) for runs in (a, b))
        ends = [max(run.start for run in runs) for runs in (a, b)]
        if ends[0] < last or ends[1] < first:
            lines.append(
                "the runs of one side were all made before the other's: what changed on the "
                "machine meanwhile is in the ratio; alternate A and B"
            )
    return lines
