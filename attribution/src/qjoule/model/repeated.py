# SPDX-License-Identifier: Apache-2.0
"""Runs of one workload on two sides, A and B: whether they may be compared, and their arrays.

A run is an attribution by fingerprint, alone or with other keys. All runs of both sides must have
the same keys, energy source, idle policy, machine and calibration; `differences` lists what
differs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from statistics import fmean

import numpy as np

from qjoule.model.arrays import F64
from qjoule.model.gpsup import Form


@dataclass(frozen=True)
class MadeWith:
    """In words: what two runs must have in common for their joules to be comparable."""

    grade: str
    idle_policy: str
    energy_source: str
    machine: str
    calibration: str


@dataclass(frozen=True)
class RunForms:
    """One run: its query forms. `start` is ISO 8601, empty if unknown."""

    name: str
    forms: list[Form]
    made_with: MadeWith
    start: str = ""
    duration_s: float = 0.0
    selection: str = ""  #: `--where` of the attribution
    by: str = "fingerprint"  #: `--by` of it
    problems: tuple[str, ...] = ()  #: what was lost during the run

    @property
    def recording(self) -> tuple[str, ...]:
        """Equal for equal recordings, also for copies: it contains the machine's clock."""
        if not self.start:
            return ("by name", self.name)
        return (self.made_with.machine, self.start, repr(self.duration_s))


@dataclass(frozen=True)
class Difference:
    """A difference that makes two runs incomparable: `what` (`grade`, ...), and both values."""

    what: str
    first: str
    other: str
    other_run: str

    def __str__(self) -> str:
        first, other = self.first or "not known", self.other or "not known"
        return f"{self.what}: {first}, but {other} of {self.other_run}"


def differences(runs: Sequence[RunForms]) -> list[Difference]:
    """The items of `MadeWith`, and the selection, that differ from the first run: each once."""
    first_differences = {}
    for run in runs[1:]:
        for item, first, other in _comparable_items(runs[0], run):
            if first != other and item not in first_differences:
                first_differences[item] = Difference(item, first, other, run.name)
    return list(first_differences.values())


def _comparable_items(first: RunForms, other_run: RunForms) -> list[tuple[str, str, str]]:
    pairs = [
        (field.name.replace("_", " "), getattr(first.made_with, field.name),
         getattr(other_run.made_with, field.name))
        for field in fields(MadeWith)
    ]  # fmt: skip
    return [
        *pairs,
        ("selection", first.selection, other_run.selection),
        ("keys", first.by, other_run.by),
    ]


def repeated_recording(runs: Sequence[RunForms]) -> tuple[str, str] | None:
    """The names of two runs of one side that are the same recording, which would count twice."""
    names: dict[tuple[str, ...], str] = {}
    for run in runs:
        if run.recording in names:
            return names[run.recording], run.name
        names[run.recording] = run.name
    return None


@dataclass(frozen=True)
class Figures:
    """Figures of some statements (n) in the runs (m) of one side: (n, m) each; NaN is unknown."""

    j_per_call: F64
    latency_ns: F64
    low_j: F64  #: ends of the runs' own 95 % intervals
    high_j: F64
    loss_share: F64
    calls: F64

    @property
    def edp(self) -> F64:
        """Energy-delay product of a call, J*ns."""
        return self.j_per_call * self.latency_ns

    @property
    def power(self) -> F64:
        """Power while a call runs, GW (J/ns); only ratios of it are used."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.j_per_call / self.latency_ns


def figures(runs: Sequence[RunForms], names: Sequence[str]) -> Figures:
    """The figures of the statements `names` in each of `runs`."""
    by_run = [{form.name: form for form in run.forms} for run in runs]
    shape = (len(names), len(runs))
    columns = {field.name: np.full(shape, np.nan) for field in fields(Figures)}
    for column, forms in enumerate(by_run):
        for row, name in enumerate(names):
            form = forms.get(name)
            if form is None or not form.calls:
                continue
            columns["calls"][row, column] = form.calls
            columns["loss_share"][row, column] = form.loss_share
            columns["latency_ns"][row, column] = form.latency_ns_mean or np.nan
            if form.j_per_call:
                columns["j_per_call"][row, column] = form.j_per_call
                low, high = form.j_per_call_ci95 or (0.0, np.inf)
                columns["low_j"][row, column], columns["high_j"][row, column] = low, high
    return Figures(**columns)


def in_total(a: Figures, b: Figures) -> tuple[Figures, Figures, list[bool]]:
    """Combines all statements into one: the cost of A's mix of calls at each run's figures.

    The mix is fixed (A's calls, all runs together), so a run with other shares of the statements
    does not look like another cost. A statement that is missing in any run cannot be included; the
    third value states for each statement whether it is.
    """
    in_every_run = np.isfinite(np.hstack([a.j_per_call, b.j_per_call]).sum(axis=1))
    weights = np.where(in_every_run, np.nansum(a.calls, axis=1), 0.0)
    if weights.sum():
        weights = weights / weights.sum()
    return _weighted(a, weights), _weighted(b, weights), [bool(is_in) for is_in in in_every_run]


def _weighted(figures: Figures, weights: F64) -> Figures:
    is_used = weights > 0

    def mean(values: F64) -> F64:
        if not is_used.any():
            return np.full((1, values.shape[1]), np.nan)
        sums: F64 = weights[is_used] @ values[is_used]
        return sums[None, :]

    j_per_call = mean(figures.j_per_call)
    lost = mean(figures.loss_share * figures.j_per_call) / j_per_call
    calls = np.nansum(figures.calls[is_used], axis=0)[None, :]
    return Figures(
        j_per_call, mean(figures.latency_ns), mean(figures.low_j), mean(figures.high_j), lost, calls
    )


def loss_slack(a: Figures, b: Figures) -> F64:
    """Possible effect of lost records on both sides, the same in either direction, (2, n)."""
    log_loss = np.log1p(mean_of_runs(a.loss_share) + mean_of_runs(b.loss_share))
    return np.stack([log_loss, log_loss])


def error_slack(a: Figures, b: Figures) -> F64:
    """All errors in the runs' own intervals, of both sides, (2, n)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        down_a, up_a, down_b, up_b = (
            mean_of_runs(np.maximum(np.log(over) - np.log(under), 0.0))
            for side in (a, b)
            for over, under in ((side.j_per_call, side.low_j), (side.high_j, side.j_per_call))
        )
    return np.stack([down_b + up_a, up_b + down_a])


def with_mean_parts(forms: Sequence[Form], runs: Sequence[RunForms]) -> list[Form]:
    """The forms with the means over `runs` of the parts of their latency.

    Without them if any run that has the form's calls lacks them.
    """
    of_runs = defaultdict(list)
    for run in runs:
        for form in run.forms:
            if form.calls:
                of_runs[form.name].append(form.latency_parts_ns)
    means = {
        name: {
            part: fmean(run_parts[part] for run_parts in parts_by_run) for part in parts_by_run[0]
        }
        for name, parts_by_run in of_runs.items()
        if all(parts_by_run)
    }
    return [replace(form, latency_parts_ns=means.get(form.name, {})) for form in forms]


def mean_of_runs(values: F64) -> F64:
    """Mean over the runs that have a value; 0 if none has, because the figure itself is then
    unknown."""
    is_known = ~np.isnan(values)
    sums: F64 = np.where(is_known, values, 0.0).sum(axis=1) / np.maximum(is_known.sum(axis=1), 1)
    return sums
