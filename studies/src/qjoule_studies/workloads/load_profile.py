# SPDX-License-Identifier: Apache-2.0
"""A load over time, step by step, from a CSV file.

The file's first line is `t_s,percent` or `t_s,per_s`; each further line begins a step: its time in
seconds from the beginning, and the load until the next line, in percent of the measured peak or in
operations per second. The first step begins at 0 and all steps are equally long, including the last
one. So a missing line is detected, and its load is never guessed.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path

from qjoule.api import QjouleError, UsageError

MOST_PERCENT = 1_000.0
MOST_PER_S = 10_000_000.0
_MOST_STEPS = 1_000_000
_UNITS = {"percent": MOST_PERCENT, "per_s": MOST_PER_S}


@dataclass(frozen=True)
class Profile:
    """Levels, each for `step_s` seconds. `unit` is `percent` (of a peak) or `per_s`."""

    step_s: float
    levels: tuple[float, ...]
    unit: str

    @property
    def seconds(self) -> float:
        return self.step_s * len(self.levels)

    def per_s(self, peak_per_s: float) -> tuple[float, ...]:
        """The levels as operations per second. A peak of 0 is not known.

        Raises:
            UsageError: one is more than 1000 % of the peak.
        """
        if self.unit == "percent":
            return tuple(level * peak_per_s / 100 for level in self.levels)
        if peak_per_s and max(self.levels) > peak_per_s * MOST_PERCENT / 100:
            raise UsageError(
                f"the profile's {max(self.levels):g}/s is more than {MOST_PERCENT:g} % of the peak "
                f"of {peak_per_s:g}/s"
            )
        return self.levels


def read_profile(path: Path) -> Profile:
    """The profile in a file.

    Raises:
        QjouleError: it cannot be read.
        UsageError: it is no profile; names the line and says what is expected there.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8: write it as a CSV file") from error
    except OSError as error:
        raise QjouleError(f"cannot read the load profile {path}: {error.strerror}") from error
    try:
        return parse_profile(text)
    except UsageError as error:
        raise UsageError(f"{path}, {error}") from None


def parse_profile(text: str) -> Profile:
    """As `read_profile`, of the file's text."""
    rows = csv.reader(text.splitlines())
    unit = _unit(next(rows, []))
    times: list[float] = []
    levels: list[float] = []
    for line, row in enumerate(rows, 2):
        if len(row) != 2:
            raise _bad(line, f"has {len(row)} values: write t_s,{unit} (is a value missing?)")
        t_s = _number(line, "t_s", row[0])
        _check_time(line, t_s, times)
        level = _number(line, unit, row[1])
        if not 0 <= level <= _UNITS[unit]:
            raise _bad(line, f"{unit} is {level:g}: give 0 to {_UNITS[unit]:g}")
        times.append(t_s)
        levels.append(level)
        if len(times) > _MOST_STEPS:
            raise _bad(line, f"a profile has at most {_MOST_STEPS:,} steps")
    if len(times) < 2:
        raise _bad(len(times) + 1, "the profile ends: it needs at least two steps")
    return Profile(times[1], tuple(levels), unit)


def _unit(header: list[str]) -> str:
    names = [name.strip() for name in header]
    if len(names) != 2 or names[0] != "t_s" or names[1] not in _UNITS:
        raise _bad(1, f"is {','.join(names)[:40]!r}: begin with 't_s,percent' or 't_s,per_s'")
    return names[1]


def _number(line: int, name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise _bad(line, f"{name} is {text[:40]!r}: give a number") from None
    if not math.isfinite(value):
        raise _bad(line, f"{name} is {text[:40]!r}: give a finite number")
    return value


def _check_time(line: int, t_s: float, before: list[float]) -> None:
    if not before:
        if t_s != 0:
            raise _bad(line, f"t_s is {t_s:g}: the first step begins at 0")
        return
    step_s = t_s - before[-1]
    if step_s <= 0:
        raise _bad(line, f"t_s is {t_s:g}, and {before[-1]:g} in the line before: sort by time")
    if len(before) == 1 or math.isclose(step_s, before[1], rel_tol=1e-6, abs_tol=1e-9):
        return
    how = "there is a gap" if step_s > before[1] else "the steps differ"
    raise _bad(
        line,
        f"{how}: t_s is {t_s:g}, {step_s:g} s after the line before, where steps have "
        f"{before[1]:g} s; write a line for each step",
    )


def _bad(line: int, what: str) -> UsageError:
    return UsageError(f"line {line}: {what}")
