# SPDX-License-Identifier: Apache-2.0
"""Makes the tables of a trace from what was captured.

The capture stays as it is until the tables are whole. A conversion that was interrupted at any
moment is begun anew by the next one.

Shares of the tables are made in processes of their own. Each reads the whole capture and writes its
own tables, so nothing but progress and the result passes between them. They end with the process
that forked them, however it ends.
"""

from __future__ import annotations

import fcntl
import json
import os
import selectors
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from qjoule.children import FIRST, Child, share_memory, write_all
from qjoule.errors import QjouleError
from qjoule.process import as_given, by_descriptor, opened_directories
from qjoule.spool.files import CONVERTING, FOLDER, is_captured, meta_of, names_of, spool_of
from qjoule.spool.tables import Made, Tables
from qjoule.stream.context import Share
from qjoule.trace.durable import replace_meta, sync
from qjoule.trace.meta import Meta
from qjoule.trace.meta_file import open_regular, parse_meta
from qjoule.trace.schema import TABLES

_READ_BYTES = 1 << 16
#: Bytes of the capture between two reports of progress.
_STEP_BYTES = 1 << 20
#: (bytes done, bytes in all)
Progress = Callable[[int, int], object]
#: A smaller spool is converted sooner than further processes are started.
WORTH_BYTES = 16 << 20


class ShareWorker:
    """A process that makes one share."""

    def __init__(self, trace: Path, folder: Path, share: Share) -> None:
        self.share = share
        self.done = self.total = 0
        self.made: Made | None = None
        self._partial_line = b""
        # A name below /proc/self/fd leads to something else in the worker.
        descriptors: list[int] = []
        try:
            descriptors += (
                os.open(path, os.O_PATH | os.O_DIRECTORY) for path in (trace, folder.parent)
            )
            self._child = Child.start(lambda pipe: _run(trace, folder, share, pipe), descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def fileno(self) -> int:
        return self._child.pipe

    def read_messages(self) -> bool:
        """Reads the worker's messages; False: it has ended. Raises QjouleError: it failed."""
        data = os.read(self._child.pipe, _READ_BYTES)
        *lines, self._partial_line = (self._partial_line + data).split(b"\n")
        for line in lines:
            self._apply_message(json.loads(line))
        return bool(data)

    def close(self) -> None:
        self._child.end()

    def _apply_message(self, message: dict[str, Any]) -> None:
        if "error" in message:
            raise QjouleError(message["error"])
        if "meta" in message:
            meta = parse_meta(message.pop("meta").encode())
            self.made = Made(meta, **message)
        else:
            self.done, self.total = message["done"], message["total"]


def make_shares(trace: Path, folders: dict[Share, Path], progress: Any) -> Sequence[Made]:
    """Makes several shares at once, each in its folder.

    Raises:
        QjouleError: one of them failed or was killed. None of them runs any more.
    """
    workers: list[ShareWorker] = []
    share_memory()
    try:
        for share, folder in folders.items():
            workers.append(ShareWorker(trace, folder, share))
        _wait(workers, progress)
    finally:
        for worker in workers:
            worker.close()
    return [worker.made for worker in workers if worker.made is not None]


def _wait(workers: Sequence[ShareWorker], progress: Any) -> None:
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker, selectors.EVENT_READ, worker)
        while selector.get_map():
            for key, _ in selector.select():
                worker = key.data
                if not worker.read_messages():
                    selector.unregister(worker)
                    if worker.made is None:
                        raise QjouleError(
                            "a process of the conversion was killed; the recording is as it was: "
                            "run `qjoule convert` again"
                        )
            total = sum(worker.total for worker in workers)
            if total:
                progress(sum(worker.done for worker in workers), total)


def _run(trace: Path, folder: Path, share: Share, pipe: int) -> None:
    """Runs in the worker, which has both directories, by descriptor."""
    paths = [as_given(str(path)) for path in (trace, folder.parent)]
    opened_directories.clear()
    trace, unfinished = (by_descriptor(FIRST + index, path) for index, path in enumerate(paths))
    try:
        tables = Tables(trace, unfinished / folder.name, share)
        reported = 0
        for done, total in tables.steps():
            if done - reported >= _STEP_BYTES:
                reported = done
                _send(pipe, done=done, total=total)
        shares = tables.finish()
        values = {"tagged": shares.tagged, "damaged": shares.damaged, "whole": shares.whole}
        _send(pipe, meta=shares.meta.to_json(), **values)
    except QjouleError as error:
        _send(pipe, error=as_given(str(error)))
    except OSError as error:
        where = error.filename or trace
        _send(pipe, error=as_given(f"{where}: {error.strerror}; the recording is as it was"))
    except MemoryError:
        _send(pipe, error=f"{paths[0]}: there is not enough memory; the recording is as it was")


def _send(pipe: int, **values: Any) -> None:
    write_all(pipe, json.dumps(values).encode() + b"\n")


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
        with _locked(trace):
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
def _locked(trace: Path) -> Iterator[None]:
    """Raises QjouleError if another process converts the same trace."""
    with open_regular(spool_of(trace)) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise QjouleError(f"{trace} is being converted by another process") from None
        yield


def _convert(trace: Path, output: Path, jobs: int, progress: Progress) -> Converted:
    unfinished = output / CONVERTING
    for name in (CONVERTING, *TABLES):  # of a conversion that was interrupted
        if (output / name).is_dir():
            shutil.rmtree(output / name)
    meta_of(trace)
    shares = [Share.ALL]
    if jobs > 1 and spool_of(trace).stat().st_size >= WORTH_BYTES:
        shares = [Share.TIMES, Share.QUERIES]
    unfinished.mkdir()
    folders = {share: unfinished / share.value for share in shares}
    if len(shares) > 1:
        made = make_shares(trace, folders, progress)
    else:
        made = [_make_here(trace, folders[Share.ALL], progress)]
    meta = _combined_meta(trace, made)
    for folder in folders.values():
        for name in TABLES:
            with suppress(FileNotFoundError):
                (folder / name).rename(output / name)
    replace_meta(output, meta)
    sync(output)
    shutil.rmtree(unfinished)
    return Converted(meta, sum(part.tagged for part in made))


def _make_here(trace: Path, folder: Path, progress: Progress) -> Made:
    tables = Tables(trace, folder)
    for done, total in tables.steps():
        progress(done, total)
    return tables.finish()


def _combined_meta(trace: Path, made: Sequence[Made]) -> Meta:
    """Combines the shares' metas; the first share has counted loss."""
    stopped = meta_of(trace).stopped
    if stopped is None and not names_of(trace).is_file():
        stopped = "the names of the recording are missing"
    elif stopped is None and any(part.damaged for part in made):
        stopped = "parts of the recording are damaged"
    elif stopped is None and not all(part.whole for part in made):
        stopped = "the recording was cut off"
    rows = {
        name: sum(count for part in made if (count := part.meta.rows.get(name))) for name in TABLES
    }
    return replace(
        made[0].meta, rows=rows, captured=None, complete=stopped is None, stopped=stopped
    )
