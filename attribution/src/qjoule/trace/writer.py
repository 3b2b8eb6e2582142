# SPDX-License-Identifier: Apache-2.0
"""Writes a trace that stays readable whatever happens: kill -9, power cut, full disk.

A part is written under a hidden name, synced, and renamed, so it is complete or absent. A separate
thread does that, because a disk may be slow and the tracer's pipe must be drained meanwhile.
`meta.json` has `complete: false` until the very end.

Small parts are merged into few files, a row group at a time; large parts stay as they are. The
merged file is renamed into place before the parts it covers are removed, and `parts.list_parts`
ignores covered parts. So an interruption at any moment neither loses nor duplicates a row.
"""

from __future__ import annotations

import errno
import queue
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from qjoule.errors import QjouleError
from qjoule.lazy_import import pq
from qjoule.trace.durable import replace_meta, sync, write_whole
from qjoule.trace.merging import PARQUET_OPTIONS, count_rows, merge_all, merge_oldest
from qjoule.trace.meta import Meta
from qjoule.trace.parts import (
    PARQUET_ERRORS,
    part_name,
    with_version,
)
from qjoule.trace.schema import TABLES

#: Batches that may wait for the disk before `write` blocks.
QUEUE_BATCHES = 4
#: Number of a table's parts that are merged at a time while recording.
MERGE_EVERY = 64
SYNC_SECONDS = 1.0


class TraceWriter:
    """A new trace in `directory`, which must be absent or empty.

    Raises `QjouleError`, which names the path, from the constructor, or from the first call after a
    failed write. Data written before stays readable.

    `waiting`: batches that may wait for the disk before `write` blocks. `merging`: merges small
    parts while writing; which, depends on the disk's speed.
    """

    def __init__(
        self,
        directory: str | Path,
        meta: Meta | None = None,
        *,
        waiting: int = QUEUE_BATCHES,
        merging: bool = True,
    ) -> None:
        self.path = Path(directory)
        self._merging = merging
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if any(self.path.iterdir()):
                raise QjouleError(
                    f"{self.path.absolute()} is not empty: give another directory with -o"
                )
            replace_meta(self.path, meta or Meta())
        except OSError as error:
            raise _failed(self.path, error) from error
        self._next_part = dict.fromkeys(TABLES, 0)
        self._unmerged = dict.fromkeys(TABLES, 0)
        self._rows = dict.fromkeys(TABLES, 0)
        self._batches: queue.Queue[Mapping[str, pa.Table] | None] = queue.Queue(waiting)
        self._error: BaseException | None = None
        self._unsynced: Path | None = None  #: the latest part not synced yet
        self._synced_s = 0.0
        self._thread = threading.Thread(target=self._run, name="qjoule-writer", daemon=True)
        self._thread.start()

    def write(self, tables: Mapping[str, pa.Table]) -> None:
        """Appends rows to tables, keyed by name, each in its schema."""
        self._check()
        self._batches.put(tables)

    def write_meta(self, meta: Meta) -> None:
        """Replaces meta.json, of a trace that is not complete yet."""
        self._check()
        try:
            replace_meta(self.path, replace(meta, complete=False))
        except OSError as error:
            raise _failed(self.path, error) from error

    def close(self, meta: Meta) -> Meta:
        """Writes waiting batches, merges small parts, and writes `meta` with the row counts.

        Only this call can make a trace complete. Raises `QjouleError` if anything failed.
        """
        if self._thread.is_alive():
            self._batches.put(None)
            self._thread.join()
        self._check()
        # a trace with many parts is complete too, only slower to open
        with suppress(*PARQUET_ERRORS):
            for name in TABLES:
                merge_all(self.path, name)
        with suppress(*PARQUET_ERRORS):
            self._rows["owners"] = count_rows(self.path, "owners")
        try:
            meta = replace(meta, rows=self._rows)
            replace_meta(self.path, meta)
        except OSError as error:
            raise _failed(self.path, error) from error
        return meta

    # ---- the writing thread ---------------------------------------------------------------------

    def _run(self) -> None:
        while (batch := self._batches.get()) is not None:
            try:
                # after an error the queue is only drained, so that no caller blocks
                if self._error is None:
                    self._write_batch(batch)
                    self._sync_if_due()
                    if self._merging:
                        self._merge_one()
            except BaseException as error:
                self._error = error
            finally:
                self._batches.task_done()

    def _write_batch(self, batch: Mapping[str, pa.Table]) -> None:
        for name in TABLES:
            table = batch.get(name)
            if table is None or not table.num_rows:
                continue
            folder = self.path / name
            folder.mkdir(exist_ok=True)
            sink = pa.BufferOutputStream()
            pq.write_table(with_version(table), sink, **PARQUET_OPTIONS[name])
            path = folder / part_name(self._next_part[name])
            write_whole(path, sink.getvalue(), durable=False)
            self._unsynced = path
            self._next_part[name] += 1
            self._unmerged[name] += 1
            self._rows[name] += table.num_rows

    def _sync_if_due(self) -> None:
        """Syncs once a second, to bound the loss at a power cut."""
        now = time.monotonic()
        if self._unsynced is not None and now - self._synced_s >= SYNC_SECONDS:
            sync(self._unsynced)
            self._unsynced, self._synced_s = None, now

    def _merge_one(self) -> None:
        """Merges some parts of the table with the most, unless a batch is waiting."""
        name = max(self._unmerged, key=self._unmerged.__getitem__)
        if self._unmerged[name] >= MERGE_EVERY and self._batches.empty():
            merged = merge_oldest(self.path, name)
            self._unmerged[name] -= merged or MERGE_EVERY  # 0 merged: all parts are large

    def _check(self) -> None:
        if isinstance(self._error, OSError):
            raise _failed(self.path, self._error) from self._error
        if self._error is not None:
            raise self._error


def _failed(directory: Path, error: OSError) -> QjouleError:
    path = directory.absolute()  # the directory may have been given as "."
    what = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return QjouleError(
            f"{path}: {what.lower()}; the trace is readable up to there, "
            "make room or give another directory with -o"
        )
    return QjouleError(f"{path}: {what}: give a directory that can be written with -o")
