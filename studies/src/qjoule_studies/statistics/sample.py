# SPDX-License-Identifier: Apache-2.0
"""Selects the runs of a study for one analysis; runs left out are counted and reported.

Runs that were measured in different ways are never compared silently.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from qjoule.api import QjouleError, UsageError
from qjoule.api.command import FACTOR
from qjoule_studies.estimates import factors_of
from qjoule_studies.statistics.design import BY, Design, Floats, Ints, blocks_of, encode

#: What can be analysed, with its unit; other columns are no response.
UNITS = {
    "j_per_operation": "J",
    "energy_j": "J",
    "queries_j": "J",
    "background_j": "J",
    "idle_j": "J",
    "power_w": "W",
    "wall_s": "s",
    "throughput": "operations/s",
    "operations": "operations",
    "errors": "errors",
    "latency_ns_mean": "ns",
    "latency_ns_p50": "ns",
    "latency_ns_p95": "ns",
    "latency_ns_p99": "ns",
    "server_cpu_s": "s",
}

#: How runs were measured: one value for all that are compared.
MEASURED_BY = {
    "grade": "grades",
    "idle_policy": "idle policies",
    "energy_source": "energy sources",
    "machine": "machines",
}
_MIND = {"client": "clients"}  #: noted if they differ


@dataclass(frozen=True)
class Sample:
    """Runs with a value of the response and a level of every factor.

    Attributes:
        values: (runs,), in `UNITS[response]`.
        order: (runs,): the runs' numbers, in the order in which they were made.
        measured_by: of `MEASURED_BY`, what all runs have in common, or each of several.
        all_runs, failed, unknown: of the study; how many of them failed; how many others have
            no value.
        own_interval: half of a run's own 95 % interval over its value, the mean; None: unknown.
    """

    response: str
    values: Floats
    design: Design
    order: Ints
    measured_by: dict[str, tuple[str, ...]]
    all_runs: int
    failed: int
    unknown: int
    own_interval: float | None
    notes: tuple[str, ...]

    @property
    def unit(self) -> str:
        return UNITS[self.response]

    @property
    def mixed(self) -> bool:
        return any(len(values) > 1 for values in self.measured_by.values())


def has_values(table: pd.DataFrame, response: str) -> bool:
    """Whether a run that is done has a value of `response`."""
    return bool(np.isfinite(_numbers(_done(table)[0], response)).any())


def select(
    table: pd.DataFrame,
    response: str,
    factors: Sequence[str] | None = None,
    *,
    mixed: bool = False,
) -> Sample:
    """The runs of `table` (`runs.read_runs`) that have a value of `response`.

    Args:
        factors: which to distinguish; None: all of the study.
        mixed: analyse runs that were measured in different ways, with a note.

    Raises:
        UsageError: there is no such response or factor.
        QjouleError: no run has a value, or runs were measured in different ways.
    """
    names = factors_of(table)
    for name in factors or ():
        if name not in names:
            raise UsageError(f"--factors {name}: the study has {', '.join(names) or 'no factors'}")
    if response not in UNITS:
        raise UsageError(f"--response {response}: choose of {', '.join(UNITS)}")
    requested = list(dict.fromkeys(names if factors is None else factors))
    done, failed = _done(table)
    values = _numbers(done, response)
    has_value = np.isfinite(values)
    for name in requested:
        has_value &= done[FACTOR + name].notna().to_numpy()
    if not has_value.any():
        raise QjouleError(_nothing(response, len(done), failed))
    used, values = done[has_value], values[has_value]
    measured_by = {column: _distinct(used, column) for column in MEASURED_BY}
    notes = _counted(used, table, failed, int((~has_value).sum()), response)
    notes += _differing(measured_by, mixed)
    notes += [
        f"runs of different {plural}: {', '.join(_distinct(used, column))}"
        for column, plural in _MIND.items()
        if len(_distinct(used, column)) > 1
    ]
    design, dropped = _design(used, requested)
    notes += dropped + _left_in_error(used, [name for name in names if name not in requested])
    return Sample(
        response,
        values,
        design,
        _order(used),
        measured_by,
        len(table),
        failed,
        int((~has_value).sum()),
        _own_interval(used, response, values),
        tuple(notes),
    )


def _done(table: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    if table.empty:
        raise QjouleError("no run of this study has ended yet: run it first")
    done = table[table["status"] == "done"] if "status" in table else table
    failed = len(table) - len(done)
    if done.empty:
        raise QjouleError(f"all {failed} runs failed: `problem` in runs.jsonl says why")
    return done, failed


def _numbers(table: pd.DataFrame, column: str) -> Floats:
    """Values that are not numbers become NaN: an unknown is never zero."""
    if column not in table:
        return np.full(len(table), np.nan)
    return np.array([_number(value) for value in table[column]], dtype=np.float64)


def _number(value: Any) -> float:
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.number):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def _nothing(response: str, done: int, failed: int) -> str:
    aside = f", {failed} failed" if failed else ""
    return (
        f"none of {done} runs has {response}{aside}: choose another with --response, or, if "
        "joules are unknown, see `qjoule doctor` for an energy source"
    )


def _counted(
    used: pd.DataFrame, table: pd.DataFrame, failed: int, unknown: int, response: str
) -> list[str]:
    notes = []
    if failed:
        notes.append(f"{failed} of {len(table)} runs failed and are left out")
    if unknown:
        notes.append(f"{unknown} runs without {response}, or without a level, are left out")
    flags: dict[str, int] = {}
    for own in used.get("flags", ()):
        for flag in own if isinstance(own, list) else ():
            flags[str(flag)] = flags.get(str(flag), 0) + 1
    notes += [f"{count} runs are flagged {flag}" for flag, count in sorted(flags.items())]
    return notes


def _distinct(used: pd.DataFrame, column: str) -> tuple[str, ...]:
    if column not in used:
        return ("unknown",)
    return tuple(
        dict.fromkeys("unknown" if pd.isna(value) else str(value) for value in used[column])
    )


def _differing(measured_by: dict[str, tuple[str, ...]], mixed: bool) -> list[str]:
    notes = []
    for column, values in measured_by.items():
        if len(values) < 2:
            continue
        many = f"runs of different {MEASURED_BY[column]} ({', '.join(values[:4])})"
        if not mixed:
            raise QjouleError(
                f"{many}: their figures do not compare; analyse them apart, or give --mixed to "
                "have them compared and flagged"
            )
        notes.append(f"{many} are compared: differences may be those of how they were measured")
    return notes


def _design(used: pd.DataFrame, requested: Sequence[str]) -> tuple[Design, list[str]]:
    names, levels, codes, notes = [], [], [], []
    for name in requested:
        numbers, labels = encode(used[FACTOR + name].tolist())
        if len(labels) < 2:
            notes.append(f"factor {name} has one level only ({labels[0]}): left out")
            continue
        names.append(name)
        levels.append(labels)
        codes.append(numbers)
    stacked = np.column_stack(codes) if codes else np.zeros((len(used), 0), dtype=np.int64)
    blocks = blocks_of(used["block"].tolist()) if "block" in used else None
    design = Design(tuple(names), tuple(levels), stacked, blocks)
    counts = np.bincount(design.cells)
    possible = int(np.prod([len(own) for own in levels])) if levels else 1
    if len(counts) < possible:
        notes.append(f"{possible - len(counts)} of {possible} combinations have no run")
    if len(counts) > 1 and counts.min() < counts.max():
        notes.append(f"unbalanced: {counts.min()} to {counts.max()} runs of a combination")
    return design, notes


def _left_in_error(used: pd.DataFrame, others: Sequence[str]) -> list[str]:
    varying = [name for name in others if used[FACTOR + name].astype(str).nunique() > 1]
    verb = "varies" if len(varying) == 1 else "vary"
    return [f"{BY.join(varying)} {verb} too: what it does is in the error"] if varying else []


def _order(used: pd.DataFrame) -> Ints:
    if "run" in used:
        numbers = _numbers(used, "run")
        if np.isfinite(numbers).all():
            return numbers.astype(np.int64)
    return np.arange(len(used), dtype=np.int64)


def _own_interval(used: pd.DataFrame, response: str, values: Floats) -> float | None:
    low, high = (_numbers(used, f"{response}_{end}") for end in ("low", "high"))
    with np.errstate(divide="ignore", invalid="ignore"):
        half = (high - low) / 2 / np.abs(values)
    half = half[np.isfinite(half)]
    return float(half.mean()) if len(half) else None
