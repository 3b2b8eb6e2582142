# SPDX-License-Identifier: Apache-2.0
"""Conversions of captured recordings, as commands run them: with progress, and before they read."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from qjoule.commands.say import say
from qjoule.spool.convert import Converted, Progress, convert
from qjoule.spool.files import is_captured


def converted(trace: Path, output: Path | None = None, *, keep: bool = False) -> Converted:
    """Converts a recording, with a progress bar and the time left if standard error is a terminal.

    Raises QjouleError, see `qjoule.spool.convert.convert`.
    """
    with _progress() as progress:
        return convert(trace, output, keep=keep, progress=progress)


def readable(traces: Sequence[Path]) -> list[Path]:
    """The traces with tables. Recordings that are only captured are converted first.

    One that may not be changed is converted into a temporary directory, which is removed when the
    command ends.
    """
    return [_readable(trace) if is_captured(trace) else trace for trace in traces]


def _readable(trace: Path) -> Path:
    if os.access(trace, os.W_OK):
        say(f"{trace} is captured and not converted yet: converting it now")
        converted(trace)
        return trace
    say(f"{trace} is captured and not converted, and may not be changed: reading a copy")
    folder = tempfile.TemporaryDirectory(prefix="qjoule-")
    click.get_current_context().call_on_close(folder.cleanup)
    copy = Path(folder.name) / trace.name
    converted(trace, copy)
    return copy


@contextmanager
def _progress() -> Iterator[Progress]:
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    with click.progressbar(length=1, label="converting", file=sys.stderr) as bar:

        def step(done: int, total: int) -> None:
            bar.length = total
            bar.update(done - bar.pos)

        yield step
