# SPDX-License-Identifier: Apache-2.0
"""A load over time, step by step, from a CSV file.

The file's first line is `t_s,percent` or `t_s,per_s`; each further line begins a step: its time in
seconds from the beginning, and the load until the next line, in percent of the measured peak or in
operations per second. The first step begins at 0 and all steps are equally long, including the last
one. So a missing line is detected, and its load is never guessed.

What became of an open loop's operations comes in as arrays, and leaves as figures and notes.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from qjoule.api import QjouleError, UsageError
from qjoule_studies.workload import Outcome
from qjoule_studies.workloads.closed_loop import latencies
from qjoule_studies.workloads.load_process import DRAIN_S
from qjoule_studies.workloads.open_loop import Sent

_LATE_NS = 1_000_000


@dataclass(frozen=True)
class Offered:
    """What was meant to arrive: for so long, of this peak (0 if unknown), with these notes."""

    seconds: float
    peak_per_s: float
    notes: tuple[str, ...] = ()


def outcome(
    processes: Sequence[tuple[Sent, npt.NDArray[np.int8]]],
    names: Sequence[str],
    offered: Offered,
) -> Outcome:
    """The outcome of all processes together.

    Args:
        processes: of each, what became of its operations, and their places in `names`.

    Returns:
        Latencies count from the arrival, also where an operation waited for a connection. Errors
        are operations that failed, that were dropped because the queue was full, and that were
        not sent until the end. `wall_s` is from the beginning of the schedule to its end, or to
        the last operation's end if that is later: idle time is part of a load.
    """
    sent = [each for each, _ in processes]
    arrivals, sent_ns, done_ns = (
        np.concatenate([getattr(each, name) for each in sent])
        for name in ("arrivals_ns", "sent_ns", "done_ns")
    )
    failed, dropped = (
        np.concatenate([getattr(each, name) for each in sent]) for name in ("failed", "dropped")
    )
    commands = np.concatenate([own for _, own in processes])
    good = (done_ns >= 0) & ~failed
    taken_ns = done_ns - arrivals
    by_command = {name: taken_ns[good & (commands == place)] for place, name in enumerate(names)}
    operations = int(good.sum())
    end_s = max(offered.seconds, float(done_ns.max(initial=0)) / 1e9)
    troubles = _troubles(sent, arrivals, sent_ns, failed, dropped)
    return Outcome(
        operations,
        len(arrivals) - operations,
        end_s,
        "qjoule",
        latencies(by_command),
        (_summary(offered, len(arrivals), operations, end_s), *offered.notes, *troubles),
    )


def _summary(offered: Offered, arrived: int, operations: int, end_s: float) -> str:
    rates = f"{arrived / offered.seconds:,.6g}/s arrived"
    if offered.peak_per_s:
        rates += f" ({arrived / offered.seconds / offered.peak_per_s:.1%} of the peak)"
    return f"{rates}, {operations / end_s:,.6g}/s were answered"


def _troubles(
    sent: Sequence[Sent],
    arrivals: npt.NDArray[np.int64],
    sent_ns: npt.NDArray[np.int64],
    failed: npt.NDArray[np.bool_],
    dropped: npt.NDArray[np.bool_],
) -> tuple[str, ...]:
    late = int(((sent_ns >= 0) & (sent_ns - arrivals > _LATE_NS)).sum())
    unsent = int(((sent_ns < 0) & ~dropped).sum())
    kinds = sorted({each.first_error for each in sent if each.first_error})
    troubles = (
        (late, "were sent more than 1 ms after their arrival, which is part of their latency"),
        (int(dropped.sum()), "arrived at a full queue and were not sent: errors"),
        (unsent, f"had not been sent {DRAIN_S:g} s after the last arrival: errors"),
        (int(failed.sum()), f"failed ({', '.join(kinds)}): errors"),
    )
    return tuple(
        f"{count:,} of {len(arrivals):,} operations {trouble}"
        for count, trouble in troubles
        if count
    )


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
    """The profile in a file's text; see `read_profile`."""
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


def _bad(line: int, reason: str) -> UsageError:
    return UsageError(f"line {line}: {reason}")
