# SPDX-License-Identifier: Apache-2.0
"""A study's progress: a bar with the time left, or lines without a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from qjoule.api.command import Run, sanitise
from qjoule.api.screen import format as fmt
from qjoule_studies.design import Slot

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress


class Progress(Protocol):
    def __enter__(self) -> Progress: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def say(self, words: str) -> None: ...

    def begins(self, slot: Slot, number: int, left: int) -> None:
        """A run begins; `left` are to be made, this one among them."""

    def ended(self, run: Run) -> None: ...


Say = Callable[[str], None]  #: writes a line to standard error, made harmless


def progress(say: Say) -> Progress:
    """A bar where standard error is a terminal, else lines."""
    return Bar() if sys.stderr.isatty() else Lines(say)


class Lines:
    """A line for each run. The time left is by the mean of the runs so far."""

    def __init__(self, say: Say, clock: Callable[[], float] = time.monotonic) -> None:
        self.say = say
        self._clock = clock
        self._begin: float | None = None
        self._done = 0
        self._left = 0

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def begins(self, slot: Slot, number: int, left: int) -> None:  # noqa: ARG002 (as Progress)
        self._left = left
        if self._begin is None:
            self._begin = self._clock()

    def ended(self, run: Run) -> None:
        self._done += 1
        each_s = (self._clock() - (self._begin or 0.0)) / self._done
        left = self._left - 1
        more = f"; {left} left, about {_time(each_s * left)}" if left else ""
        self.say(f"{run_line(run)}{more}")


class Bar:
    """A bar of rich, with the time left."""

    def __init__(self) -> None:
        from rich.console import Console  # noqa: PLC0415 (slow to import)
        from rich.progress import (  # noqa: PLC0415
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        columns = (
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}", markup=False),
        )
        self._bar: RichProgress = Progress(
            *columns, console=Console(stderr=True), transient=True, speed_estimate_period=86_400
        )
        self._task = self._bar.add_task("", total=None)
        self._done = 0

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def say(self, words: str) -> None:
        line = sanitise(" ".join(words.split()))
        self._bar.console.print(f"qjoule: {line}", markup=False, highlight=False)

    def begins(self, slot: Slot, number: int, left: int) -> None:
        levels = sanitise(" ".join(str(level) for level in slot.levels.values()))
        self._bar.update(
            self._task, total=self._done + left, description=f"run {number} {levels}"[:40]
        )

    def ended(self, run: Run) -> None:
        self._done += 1
        self._bar.update(self._task, completed=self._done)
        if run["status"] == "failed" or run["flags"]:
            self.say(run_line(run))


def run_line(run: Run) -> str:
    """Describes a run on one line."""
    levels = ", ".join(f"{name} {level}" for name, level in run["factors"].items())
    head = f"run {run['run']}" + (f" ({levels})" if levels else "")
    if run["status"] == "failed":
        return f"{head}: failed: {run['problem']}"
    phrases = [f"{run['operations']} operations in {run['wall_s']:.2f} s"]
    if (each_j := run["j_per_operation"]) is not None:
        low, high = run["j_per_operation_low"], run["j_per_operation_high"]
        ends = None if low is None or high is None else (low, high)
        joules = fmt.with_interval(each_j, ends)
        phrases.append(f"{joules} each ({run['grade']}, idle {run['idle_policy']})")
    if run["errors"]:
        phrases.append(f"{run['errors']} errors")
    return f"{head}: {', '.join([*phrases, *run['flags']])}"


def _time(seconds: float) -> str:
    minutes, seconds_left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds_left:02d}" if hours else f"{minutes}:{seconds_left:02d}"
