# SPDX-License-Identifier: Apache-2.0
"""Makes the tables of a trace from what was captured.

The capture stays as it is until the tables are whole. A conversion that was interrupted at any
moment is begun anew by the next one.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from qjoule.errors import QjouleError
from qjoule.spool.files import (
    CONVERTING,
    FOLDER,
    is_captured,
    meta_of,
    names_of,
    spool_of,
)
from qjoule.spool.tables import Made, Tables
from qjoule.spool.workers import make_shares
from qjoule.stream.context import Share
from qjoule.trace.durable import replace_meta, sync
from qjoule.trace.meta import Meta, open_regular
from qjoule.trace.schema import TABLES

#: (bytes done, bytes in all)
Progress = Callable[[int, int], object]
#: A smaller spool is converted sooner than further processes are started.
WORTH_BYTES = 16 << 20


@dataclass(frozen=True)
class Converted:
    """The trace's meta, and how many of its queries have tags that their application reported."""

    meta: Meta
    tagged: int


def convert(
    trace: Path,
    output: Path | None = None,
    *,
    keep: bool = False,
    jobs: int = 1,
    progress: Progress = lambda _done, _all: None,
) -> Converted:
    """Converts a captured trace. The tables do not depend on `jobs`.

    Args:
        output: an absent directory for the tables; None: the trace's own, from which the capture is
            then removed.
        keep: leave the capture in place.
        jobs: how many processes may work on it; more than two are not used. With 1 it is done in
            this process, which may have several threads.

    Raises:
        QjouleError: there is nothing to convert, another conversion runs, another version captured
            it, or the disk is full. The capture is as it was.
    """
    if not is_captured(trace):
        raise QjouleError(
            f"{trace} has nothing to convert: it is no recording, or it is converted already"
        )
    try:
        with _alone(trace):
            if output is not None:
                output.mkdir()
                for path in trace.iterdir():
                    if path.is_file() and not path.is_symlink():
                        shutil.copyfile(path, output / path.name)
            converted = _convert(trace, output or trace, jobs, progress)
            if not keep and output is None:
                shutil.rmtree(trace / FOLDER)
    except OSError as error:
        where = error.filename or trace
        raise QjouleError(f"{where}: {error.strerror}; the recording is as it was") from None
    return converted


@contextmanager
def _alone(trace: Path) -> Iterator[None]:
    """Raises QjouleError if another process converts the same trace."""
    with open_regular(spool_of(trace)) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise QjouleError(f"{trace} is being converted by another process") from None
        yield


def _convert(trace: Path, output: Path, jobs: int, progress: Progress) -> Converted:
    unfinished = output / CONVERTING
    _clear(output, (CONVERTING, *TABLES))  # of a conversion that was interrupted
    meta_of(trace)
    shares = [Share.ALL]
    if jobs > 1 and spool_of(trace).stat().st_size >= WORTH_BYTES:
        shares = [Share.TIMES, Share.QUERIES]
    unfinished.mkdir()
    folders = {share: unfinished / share.value for share in shares}
    if len(shares) > 1:
        made = make_shares(trace, folders, progress)
    else:
        made = [_made_here(trace, folders[Share.ALL], progress)]
    meta = _together(trace, made)
    for folder in folders.values():
        for name in TABLES:
            with suppress(FileNotFoundError):
                (folder / name).rename(output / name)
    replace_meta(output, meta)
    sync(output)
    shutil.rmtree(unfinished)
    return Converted(meta, sum(one.tagged for one in made))


def _made_here(trace: Path, folder: Path, progress: Progress) -> Made:
    tables = Tables(trace, folder)
    for done, total in tables.steps():
        progress(done, total)
    return tables.finish()


def _together(trace: Path, made: Sequence[Made]) -> Meta:
    """What the shares say together; the first one has counted loss."""
    stopped = meta_of(trace).stopped
    if stopped is None and not names_of(trace).is_file():
        stopped = "the names of the recording are missing"
    elif stopped is None and any(one.damaged for one in made):
        stopped = "parts of the recording are damaged"
    elif stopped is None and not all(one.whole for one in made):
        stopped = "the recording was cut off"
    rows = {
        name: sum(count for one in made if (count := one.meta.rows.get(name))) for name in TABLES
    }
    return replace(
        made[0].meta, rows=rows, captured=None, complete=stopped is None, stopped=stopped
    )


def _clear(output: Path, names: Sequence[str]) -> None:
    for name in names:
        if (output / name).is_dir():
            shutil.rmtree(output / name)
