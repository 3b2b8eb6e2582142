# SPDX-License-Identifier: Apache-2.0
"""Describes how joules were apportioned: weights, calibration, and rows with other power
factors."""

from __future__ import annotations

import math
from collections.abc import Iterator

from qjoule.machine.cpu import MEMORY_BY_METER, NO_DRAM_ON_AMD, is_amd
from qjoule.model.result import Attribution, Row
from qjoule.reporters import format as fmt
from qjoule.reporters.labels import query_label

_TIMES = "\N{MULTIPLICATION SIGN}"
_FACTORS = 3  #: lines of power factors under a table
_WEIGHTS = {"cpu_time": "weighted by CPU time", "counters": "weighted by hardware counters"}
#: Domains that are reported as unavailable without a counter: their energy is used all the same,
#: but no row contains it.
_EXPECTED = ("dram",)
_NO_COUNTER = "no counter here; what it draws is in no row"


def model(attribution: Attribution) -> str:
    """The weights of the split, whether they are calibrated, and their error on held-out data."""
    about = attribution.model
    return " · ".join(
        (
            _WEIGHTS.get(about.weight, about.weight),
            calibrated(attribution),
            *_held_out(attribution),
        )
    )


def calibrated(attribution: Attribution) -> str:
    """Whether the model was calibrated; if so, on which machine and when."""
    about = attribution.model
    if not about.calibrated:
        return "not calibrated"
    return f"calibrated: {about.calibration}" if about.calibration else "calibrated"


def calibration_flags(attribution: Attribution) -> Iterator[tuple[str, str]]:
    """What does not fit this trace in the calibration: (name, text) lines."""
    for flag in attribution.model.calibration_flags:
        yield ("", f"the calibration {flag}")


def unavailable(attribution: Attribution) -> tuple[str, ...]:
    """Domains whose energy was not measured; empty if there is no energy at all."""
    found = attribution.energy_source.domains
    return tuple(name for name in _EXPECTED if name not in found) if found else ()


def without_counter(attribution: Attribution) -> Iterator[tuple[str, str]]:
    """Domains that are in no row, and why: (name, text) lines."""
    source = attribution.energy_source
    for name, why in source.left_out.items():
        yield ("left out", f"{name}, which is in no row: {why}")
    for name in unavailable(attribution):
        if name not in source.left_out:
            amd = source.grade == "measured" and is_amd(attribution.trace.cpu)
            on_amd = f"{NO_DRAM_ON_AMD}; {MEMORY_BY_METER}"
            yield (name, f"unavailable: {on_amd if amd else _NO_COUNTER}")


def defies_its_weight(row: Row) -> bool:
    """Whether a row's power factor differs significantly from 1."""
    if row.power_factor is None:
        return False
    _, low, high = row.power_factor
    return low > 1 or high < 1


def factors(attribution: Attribution, shown: int) -> Iterator[tuple[str, str]]:
    """Rows shown whose power differs significantly from their weights, most energy first: (name,
    text) lines."""
    found = [row for row in attribution.rows[:shown] if defies_its_weight(row)]
    for index, row in enumerate(found[:_FACTORS]):
        yield ("draws" if not index else "", f"{factor(row)} what its weight says: {_name(row)}")
    if len(found) > _FACTORS:
        yield ("", f"and {fmt.count(len(found) - _FACTORS)} more")


def factor(row: Row) -> str:
    """A row's power factor with its 95 % interval: 1.24 times, [1.10, 1.40]."""
    if row.power_factor is None:
        return fmt.UNKNOWN
    value, low, high = (fmt.significant(number) for number in row.power_factor)
    return f"{value}{_TIMES} [{low}, {high}]"


def alone(row: Row) -> str:
    """How long a row ran alone, and how much narrower that makes its factor's interval."""
    if row.alone is None:
        return fmt.UNKNOWN
    alone_s, information_nats = row.alone
    times = fmt.significant(math.exp(information_nats))
    return f"{fmt.duration(alone_s * 1e9)}, which makes the factor {times}{_TIMES} as certain"


def _name(row: Row) -> str:
    label = query_label(row)
    return label if len(label) <= 60 else label[:59] + "…"


def _held_out(attribution: Attribution) -> Iterator[str]:
    about = attribution.model
    if about.held_out_errors:
        each = (f"{name} {fmt.share(error)}" for name, error in about.held_out_errors.items())
        yield f"held-out error {', '.join(each)}"
    elif about.held_out_error is not None:
        yield f"held-out error {fmt.share(about.held_out_error)}"
