# SPDX-License-Identifier: Apache-2.0
"""How the joules were apportioned, in words: weights, calibration, and who defies the weights."""

from __future__ import annotations

from collections.abc import Iterator

from qjoule.model.result import Attribution, Row
from qjoule.reporters import format as fmt
from qjoule.reporters.labels import query_label

_TIMES = "\N{MULTIPLICATION SIGN}"
_FACTORS = 3  #: lines of power factors under a table
_WEIGHTS = {"cpu_time": "weighted by CPU time", "counters": "weighted by hardware counters"}
#: Domains that are said to be unavailable where there is no counter: their energy is spent all
#: the same, and nobody's row has it.
_EXPECTED = ("dram",)


def model(attribution: Attribution) -> str:
    """What the split went by, whether it is calibrated, and how far off it was on held-out data."""
    about = attribution.model
    return " · ".join(
        (
            _WEIGHTS.get(about.weight, about.weight),
            calibrated(attribution),
            *_held_out(attribution),
        )
    )


def calibrated(attribution: Attribution) -> str:
    """Whether the model was calibrated, and by what: of which machine, when."""
    about = attribution.model
    if not about.calibrated:
        return "not calibrated"
    return f"calibrated: {about.calibration}" if about.calibration else "calibrated"


def calibration_flags(attribution: Attribution) -> Iterator[tuple[str, str]]:
    """What of the calibration does not fit this trace: (name, text) lines."""
    for flag in attribution.model.calibration_flags:
        yield ("", f"the calibration {flag}")


def unavailable(attribution: Attribution) -> tuple[str, ...]:
    """Domains whose energy nobody counted; empty where there is no energy at all."""
    found = attribution.energy_source.domains
    return tuple(name for name in _EXPECTED if name not in found) if found else ()


def defies_its_weight(row: Row) -> bool:
    """Whether a row's power factor is surely not 1."""
    if row.power_factor is None:
        return False
    _, low, high = row.power_factor
    return low > 1 or high < 1


def factors(attribution: Attribution, shown: int) -> Iterator[tuple[str, str]]:
    """Of the rows shown, those that surely draw more or less than their weights say, most energy
    first: (name, text) lines.
    """
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
