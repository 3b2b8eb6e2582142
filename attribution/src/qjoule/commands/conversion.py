# SPDX-License-Identifier: Apache-2.0
"""Conversion of captured recordings for commands: with progress, or implicitly before a trace is
read; and the summary of a written trace."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from qjoule.commands.say import say
from qjoule.errors import QjouleError
from qjoule.process import READER
from qjoule.spool.files import RingFiles, is_captured
from qjoule.trace.meta import Meta

if TYPE_CHECKING:
    from qjoule.engine.calls import CallCount
    from qjoule.spool.convert import Converted, Progress

#: Maximum width of the bar, and the width of a word, the share done and the time left beside it.
_BAR_COLUMNS, _OTHER_COLUMNS = 36, 32


def cpus() -> int:
    """The number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def converted(
    trace: Path, output: Path | None = None, *, keep: bool = False, jobs: int = 1
) -> Converted:
    """Converts a recording. Shows progress if standard error is a terminal.

    `jobs`, and errors: see `qjoule.spool.convert.convert`; several jobs need a process that may
    fork.
    """
    import pyarrow as pa  # noqa: PLC0415 (with the next it takes 0.3 s, and 50 MB)

    from qjoule.spool.convert import convert  # noqa: PLC0415

    # Arrow's own pool keeps freed memory: 20 MB more in each process.
    pa.set_memory_pool(pa.system_memory_pool())
    with _progress() as progress:
        return convert(trace, output, keep=keep, jobs=jobs, progress=progress)


def readable(traces: Sequence[Path]) -> list[Path]:
    """Returns the traces with tables. Captured recordings are converted first.

    A recording that may not be changed is converted into a temporary directory, which is removed
    when the command ends.

    Raises QjouleError for a flight recorder: its parts are recordings.
    """
    for trace in traces:
        if RingFiles(trace).folder.is_dir():
            raise QjouleError(
                f"{trace} is a flight recorder: run `qjoule dump {trace}` and read what it saves"
            )
    return [_readable(trace) if is_captured(trace) else trace for trace in traces]


def _readable(trace: Path) -> Path:
    about = trace.stat()
    if os.geteuid() == 0 and (about.st_uid or about.st_gid == READER):
        # Another user may have made it. The result is read by others, so root must not convert it.
        raise QjouleError(
            f"{trace} is captured and not converted, and not for root to read: run "
            f"`sudo qjoule convert {trace}` first, which gives up root"
        )
    if os.access(trace, os.W_OK):
        say(f"{trace} is captured and not converted yet: converting it now")
        converted(trace, jobs=cpus())
        return trace
    say(f"{trace} is captured and not converted, and may not be changed: reading a copy")
    folder = tempfile.TemporaryDirectory(prefix="qjoule-")
    click.get_current_context().call_on_close(folder.cleanup)
    copy = Path(folder.name) / trace.name
    converted(trace, copy, jobs=cpus())
    return copy


@contextmanager
def _progress() -> Iterator[Progress]:
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    columns = os.get_terminal_size(sys.stderr.fileno()).columns
    width = max(1, min(_BAR_COLUMNS, columns - _OTHER_COLUMNS))
    with click.progressbar(length=1, label="converting", width=width, file=sys.stderr) as bar:

        def step(done: int, total: int) -> None:
            bar.length = total
            bar.update(done - bar.pos)

        yield step


def what_was_written(directory: Path, meta: Meta, counted: CallCount, *notes: str) -> str:
    """Summarises a trace in one line: calls, segments, energy source, and loss."""
    # Imported here, because a recording has not ended yet when this module is loaded.
    from qjoule.reporters.missing import lost  # noqa: PLC0415
    from qjoule.reporters.server_changes import hidden_advice  # noqa: PLC0415

    missing = lost(meta.loss, meta.lost_cpu_ns, hidden_advice(meta.changes))
    parts = [
        _calls(counted),
        pluralised(meta.rows.get("segments", 0), "segment", "segments"),
        f"energy {meta.energy.source} ({meta.energy.grade})",
        *notes,
        f"lost: {missing}" if missing else "nothing lost",
    ]
    return f"{directory}: {', '.join(parts)}"


def pluralised(number: int, singular: str, plural: str) -> str:
    """Formats a number with its unit in the singular or plural."""
    return f"{number:,} {singular if number == 1 else plural}"


def _calls(counted: CallCount) -> str:
    """Formats the number of calls as in `attribute`'s total, and what else was recorded."""
    calls = pluralised(counted.calls, "call", "calls")
    if not counted.others:
        return calls
    kinds = ", ".join(f"{number:,} {kind}" for kind, number in counted.others.most_common())
    return f"{calls} (not counted as calls: {kinds})"
