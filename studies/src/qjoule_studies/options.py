# SPDX-License-Identifier: Apache-2.0
"""Options of workloads: checked values, or an error that says what to give."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from qjoule.api import UsageError
from qjoule_studies.workload import Value


def check_names(options: Mapping[str, Value], defaults: Mapping[str, Value]) -> None:
    """Raises UsageError unless exactly the options of `defaults` are there."""
    for name in options:
        if name not in defaults:
            raise UsageError(f"there is no option {name!r:.50}: choose {', '.join(defaults)}")
    for name in defaults:
        if name not in options:
            raise UsageError(f"option {name} is missing")


def whole(options: Mapping[str, Value], name: str, least: int, most: int) -> int:
    """A whole number from `least` to `most`; 1e3 is one too. Raises UsageError."""
    value = options[name]
    number = not isinstance(value, bool) and isinstance(value, (int, float))
    if not number or not least <= value <= most or value != int(value):  # type: ignore[operator]
        raise UsageError(f"{name} has to be a whole number from {least:,} to {most:,}")
    return int(value)


def real(options: Mapping[str, Value], name: str, least: float, most: float) -> float:
    """A number from `least` to `most`. Raises UsageError."""
    value = options[name]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise UsageError(f"{name} has to be a number from {least:g} to {most:g}")
    return float(value)


def choice(options: Mapping[str, Value], name: str, known: Collection[str]) -> str:
    """One of `known`. Raises UsageError."""
    value = options[name]
    if not isinstance(value, str) or value not in known:
        raise UsageError(f"{name} {value!r:.50} is not known: choose {', '.join(known)}")
    return value
