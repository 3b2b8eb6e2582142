# SPDX-License-Identifier: Apache-2.0
"""The store: rollups per minute in one Parquet file per hour, and tables of shapes and servers.

    rollups/date=2026-11-23/host=db1/hour-19.parquet
    shapes/host=db1/shapes.parquet
    servers/host=db1/servers.parquet

Each minute the current hour's file is replaced as a whole, so a reader finds each minute once and
every file is complete. A crash loses the minute that was not written yet. Files are not synced:
each sync would make a database on the same disk wait. A file that cannot be
read is put aside under another name and counted. The bounds in days and bytes hold for all files.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from qjoule.agent.rollup import ROWS, Minute
from qjoule.agent.slow_tables import SlowTable
from qjoule.errors import QjouleError
from qjoule.trace.arrow import pq
from qjoule.trace.durable import write_whole

_LOCK, _DAMAGED = ".lock", ".damaged"
_DAY = re.compile(r"date=\d{4}-\d\d-\d\d\Z")
_PLAIN = re.compile(r"[^A-Za-z0-9._-]")
_MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Kept:
    """How much is kept."""

    days: int
    megabytes: int


class Store:
    """One agent's store; `close` it. `failures`, `damaged` and `bytes` are for the metrics."""

    def __init__(self, path: Path, host: str, kept: Kept) -> None:
        """Raises `QjouleError`: not ours to write, or another agent has it."""
        self.kept = kept
        self.failures = self.damaged = self.bytes = 0
        self.trouble = ""  #: why the last minute could not be written
        self._path = path
        self._host = _PLAIN.sub("_", host) or "unknown"
        self._lock = _locked(path)
        self._hour: tuple[Path, pa.Table] | None = None
        self.tables = {
            "shapes": SlowTable(("fingerprint", "server", "database"), ("text", "rung", "ids")),
            "servers": SlowTable(("server",), ("kind", "version", "exe", "rung")),
        }
        for name, table in self.tables.items():
            found = self._read(self._slow(name))
            if found is not None and not table.load(found):
                self._put_aside(self._slow(name))

    def write(self, minute: Minute, main: str) -> bool:
        """Writes a minute, what changed in the tables, and removes what is too old or too much."""
        path = self._hour_of(minute.start_s)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            before = self._before(path)
            whole = pa.concat_tables([before, minute.table(main)])
            write_whole(path, _parquet(whole), durable=False)
            self._hour = (path, whole)
            for name, table in self.tables.items():
                if table.changed:
                    self._slow(name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    write_whole(self._slow(name), _parquet(table.table()), durable=False)
                    table.changed = False
            self._remove_old(minute.start_s, path)
        except (OSError, pa.ArrowException) as error:
            self.failures += 1
            self._hour = None  # what is on disk counts
            self.trouble = f"{path}: {getattr(error, 'strerror', None) or error}"
            return False
        self.trouble = ""
        return True

    def close(self) -> None:
        os.close(self._lock)

    def _hour_of(self, start_s: int) -> Path:
        at = datetime.fromtimestamp(start_s, UTC)
        day = self._path / "rollups" / f"date={at:%Y-%m-%d}" / f"host={self._host}"
        return day / f"hour-{at:%H}.parquet"

    def _slow(self, name: str) -> Path:
        return self._path / name / f"host={self._host}" / f"{name}.parquet"

    def _before(self, path: Path) -> pa.Table:
        """The minutes that the hour's file has already: also after a restart, or a clock's step."""
        if self._hour is not None and self._hour[0] == path:
            return self._hour[1]
        found = self._read(path)
        if found is not None and found.schema.equals(ROWS, check_metadata=True):
            return found
        if found is not None:
            self._put_aside(path)
        return ROWS.empty_table()

    def _read(self, path: Path) -> pa.Table | None:
        """A file's table; None if there is none, or it had to be put aside."""
        try:
            if not path.exists():
                return None
            return pq.ParquetFile(path).read()
        except (OSError, pa.ArrowException, ValueError):
            self._put_aside(path)
            return None

    def _put_aside(self, path: Path) -> None:
        self.damaged += 1
        with suppress(OSError):
            path.replace(path.with_name(path.name + _DAMAGED))

    def _remove_old(self, now_s: int, current: Path) -> None:
        """Oldest first, and never the hour that is being written."""
        files = [(one, one.stat().st_size) for one in self._files()]
        fixed = sum(self._size(name) for name in self.tables)
        self.bytes = fixed + sum(size for _, size in files)
        first = datetime.fromtimestamp(now_s, UTC) - timedelta(days=self.kept.days)
        oldest = f"date={first:%Y-%m-%d}"
        for one, size in files:
            too_old = one.parent.parent.name < oldest
            if one == current or not (too_old or self.bytes > self.kept.megabytes * _MEGABYTE):
                continue
            one.unlink()
            self.bytes -= size
            for directory in (one.parent, one.parent.parent):
                with suppress(OSError):  # it is not empty
                    directory.rmdir()

    def _files(self) -> Iterator[Path]:
        """Files of rollups, oldest first; other files are not ours to remove."""
        rollups = self._path / "rollups"
        if not rollups.is_dir():
            return
        for day in sorted(one for one in rollups.iterdir() if _DAY.match(one.name)):
            yield from sorted(day.glob(f"host={self._host}/hour-??.parquet*"))

    def _size(self, name: str) -> int:
        with suppress(OSError):
            return self._slow(name).stat().st_size
        return 0


def _locked(path: Path) -> int:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise QjouleError(
            f"store.path: {path}: {error.strerror}: make it a directory of the agent's user "
            f"(uid {os.geteuid()}), or set store.enabled = false"
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise QjouleError(f"store.path: {path}: another agent writes to it") from None
    return descriptor


def _parquet(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    keys = [
        name for name in ("kind", "server", "fingerprint", "minute") if name in table.schema.names
    ]
    ordered = table.sort_by([(name, "ascending") for name in keys]) if "minute" in keys else table
    # A dictionary of numbers that hardly repeat would make the file a third larger.
    texts = [one.name for one in table.schema if one.type == pa.string()]
    pq.write_table(ordered, sink, compression="zstd", compression_level=3, use_dictionary=texts)
    return sink.getvalue()
