# SPDX-License-Identifier: Apache-2.0
"""Makes the shares of a trace's tables in processes of their own.

Each reads the whole capture and writes its own tables, so nothing but progress and the result
passes between them. They end with the process that forked them, however it ends.
"""

from __future__ import annotations

import json
import os
import selectors
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qjoule.children import FIRST, Child, share_memory, write_all
from qjoule.errors import QjouleError
from qjoule.process import as_given, by_descriptor, opened_directories
from qjoule.spool.tables import Made, Tables
from qjoule.stream.context import Share
from qjoule.trace.meta import parse_meta

_READ_BYTES = 1 << 16
#: Bytes of the capture between two reports of progress.
_STEP_BYTES = 1 << 20


class ShareWorker:
    """A process that makes one share."""

    def __init__(self, trace: Path, folder: Path, share: Share) -> None:
        self.share = share
        self.done = self.total = 0
        self.made: Made | None = None
        self._left = b""
        # A name below /proc/self/fd leads to something else in the worker.
        kept: list[int] = []
        try:
            kept += (os.open(path, os.O_PATH | os.O_DIRECTORY) for path in (trace, folder.parent))
            self._child = Child.start(lambda pipe: _work(trace, folder, share, pipe), kept)
        finally:
            for descriptor in kept:
                os.close(descriptor)

    def fileno(self) -> int:
        return self._child.pipe

    def hear(self) -> bool:
        """Takes in what it says; False: it has ended. Raises QjouleError: it failed."""
        data = os.read(self._child.pipe, _READ_BYTES)
        *lines, self._left = (self._left + data).split(b"\n")
        for line in lines:
            self._take(json.loads(line))
        return bool(data)

    def close(self) -> None:
        self._child.end()

    def _take(self, said: dict[str, Any]) -> None:
        if "error" in said:
            raise QjouleError(said["error"])
        if "meta" in said:
            meta = parse_meta(said.pop("meta").encode())
            self.made = Made(meta, **said)
        else:
            self.done, self.total = said["done"], said["total"]


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
                if not worker.hear():
                    selector.unregister(worker)
                    if worker.made is None:
                        raise QjouleError(
                            "a process of the conversion was killed; the recording is as it was: "
                            "run `qjoule convert` again"
                        )
            total = sum(worker.total for worker in workers)
            if total:
                progress(sum(worker.done for worker in workers), total)


def _work(trace: Path, folder: Path, share: Share, pipe: int) -> None:
    """The whole life of such a process. It has both directories, by descriptor."""
    words = [as_given(str(path)) for path in (trace, folder.parent)]
    opened_directories.clear()
    trace, unfinished = (by_descriptor(FIRST + at, word) for at, word in enumerate(words))
    try:
        tables = Tables(trace, unfinished / folder.name, share)
        told = 0
        for done, total in tables.steps():
            if done - told >= _STEP_BYTES:
                told = done
                _say(pipe, done=done, total=total)
        made = tables.finish()
        assert made is not None
        values = {"tagged": made.tagged, "damaged": made.damaged, "whole": made.whole}
        _say(pipe, meta=made.meta.to_json(), **values)
    except QjouleError as error:
        _say(pipe, error=as_given(str(error)))
    except OSError as error:
        where = error.filename or trace
        _say(pipe, error=as_given(f"{where}: {error.strerror}; the recording is as it was"))
    except MemoryError:
        _say(pipe, error=f"{words[0]}: there is not enough memory; the recording is as it was")


def _say(pipe: int, **values: Any) -> None:
    write_all(pipe, json.dumps(values).encode() + b"\n")
