# SPDX-License-Identifier: Apache-2.0
"""The store: rollups per minute in one Parquet file per hour, and tables of shapes and servers.

Its layout is that of a fleet's dataset (`qjoule.agent.rollup_layout`).

The current hour's file is replaced as a whole, so a reader finds each minute once and every file is
complete. A crash loses the minute that was not counted yet. Once an hour is over, it is *closed*:
its sums are written, and its files do not change any more. A file that cannot be read is put aside
under another name and counted. The bounds in days and bytes hold for all files.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from qjoule.agent.hourly_tables import (
    KEYS,
    SAMPLE_ROWS,
    SLOW_COLUMNS,
    TAG_ROWS,
    bounded,
    of_hour,
    thinned,
)
from qjoule.agent.journal import Outcome, Retention, StoreState
from qjoule.agent.minute import Minute
from qjoule.agent.part_files import PartFiles
from qjoule.agent.rollup_layout import (
    CLOSED_KEY,
    HOUR_S,
    HOURS,
    ROLLUPS,
    SAMPLES,
    TAGS,
    Part,
    host_name,
    hour_of,
)
from qjoule.agent.store_directory import host_id_of
from qjoule.agent.store_rows import SlowTable, minute_table, sample_table, tag_table

_MEGABYTE = 1_000_000
#: Metadata key: the part includes the hour's part of schema 1, which may still exist.
_INCLUDES_KEY = "qjoule.includes"
#: Metadata key: the journal entry that was added last.
_ENTRY_KEY = "qjoule.entry"
#: An hour is closed so long after its end: the clock may be set back a little.
GRACE_S = 300
#: Hours further ahead than this are closed: the clock was wrong.
AHEAD_S = 86_400
#: Drawn queries of an hour that are kept: clients can send any number of different statements.
MAX_SAMPLES = 50_000
#: Hours that are closed with one minute, so that minutes do not wait after a long time off.
CLOSED_AT_ONCE = 4


@dataclass(frozen=True)
class _Hour:
    """The hour that is being written. `old`: its part of schema 1, if there is one."""

    part: Part
    rows: pa.Table
    old: Path | None = None
    entry: str = ""  #: the journal entry that was added last

    @property
    def more(self) -> dict[str, str]:
        metadata = {} if self.old is None else {_INCLUDES_KEY: "1"}
        return metadata | _entry_metadata(self.entry)


class Store:
    """A store that one process at a time writes to."""

    def __init__(
        self, path: Path, host: str, retention: Retention, known: StoreState | None = None
    ) -> None:
        """`known`: what an earlier `Store` of this path knew. Raises `OSError`: it is not ours."""
        self.path, self.retention = path, retention
        self.failures = self.bytes = self.written = 0
        self.dropped_samples = 0  #: drawn queries beyond `MAX_SAMPLES`
        self.moved = 0  #: minutes that belonged to a closed hour, and are in a later one
        self.trouble = ""  #: why the last minute could not be written
        self._host = host_name(host)
        self._host_id = host_id_of(path)
        self._files = PartFiles(path, self._host_id)
        self._hour: _Hour | None = None
        self._open = None if known is None else set(known.open)  #: None: not known yet
        self._closed = set() if known is None else set(known.closed)
        self._settled_bytes = 0 if known is None else known.settled_bytes
        self._bounded = None if known is None else known.bounded
        self.tables = {name: SlowTable(*columns) for name, columns in SLOW_COLUMNS.items()}
        for name, table in self.tables.items():
            self._load(name, table)

    @property
    def damaged(self) -> int:
        """Files that were put aside."""
        return self._files.damaged

    @property
    def outcome(self) -> Outcome:
        return Outcome(
            *(self.written, self.failures, self.damaged, self.moved, self.dropped_samples),
            *(self.bytes, self.trouble),
        )

    @property
    def known(self) -> StoreState:
        return StoreState(
            *(sorted(self._open_parts()), sorted(self._closed)), self._settled_bytes, self._bounded
        )

    def write(self, minute: Minute, main: str, entry: str = "") -> bool:
        """Writes a minute, and what is due with it. False if the minute is lost. `entry`: its name
        in the journal; files that have it already stay as they are."""
        hour_s = hour_of(minute.start_s)
        try:
            unclosed = self._open_parts()
            while hour_s in self._closed:
                hour_s += HOUR_S
            part = Part(ROLLUPS, self._host, self._host_id, hour_s)
            self._write(part, minute, main, entry)
            unclosed.add(part)
        except (OSError, pa.ArrowException) as error:
            self.failures += 1
            self._hour = None  # read the file anew next time
            self.trouble = self._reason(error)
            return False
        try:
            if minute.tagged:
                self._write_tags(part, minute, entry)
            if minute.samples:
                self._write_samples(part, minute, entry)
            for name, table in self.tables.items():
                if table.changed:
                    self._write_slow(name, table)
            self._close_hours(unclosed, part, minute.start_s)
            self._keep_bounds(minute.start_s, part)
        except (OSError, pa.ArrowException) as error:
            self.trouble = self._reason(error)
        else:
            self.trouble = ""
        self.written += 1
        return True

    def _reason(self, error: Exception) -> str:
        file = getattr(error, "filename", None) or self._files.root
        return f"{file}: {getattr(error, 'strerror', None) or error}"

    def _open_parts(self) -> set[Part]:
        """Returns the parts that are not closed. Those of schema 1 never are."""
        if self._open is None:
            unclosed: set[Part] = set()
            for part in self._files.parts(ROLLUPS):
                metadata = self._files.metadata(self._files.path(part))
                if metadata is None or part.hour_s is None:
                    continue
                if metadata.get(CLOSED_KEY) == "1":
                    self._closed.add(part.hour_s)
                else:
                    unclosed.add(replace(part, host_id=part.host_id or self._host_id))
            self._open = unclosed
        return self._open

    def _write(self, part: Part, minute: Minute, main: str, entry: str) -> None:
        before = self._stored_hour(part)
        if entry and before.entry == entry:
            return
        if minute.start_s < (part.hour_s or 0):
            self.moved += 1
            minute = replace(minute, start_s=part.hour_s or 0)
        rows = pa.concat_tables([before.rows, minute_table(minute, main, self._host_id)])
        hour = replace(before, rows=rows, entry=entry)
        self._files.write(part, rows, more=hour.more)
        self._hour = hour
        if hour.old is not None:
            hour.old.unlink(missing_ok=True)

    def _write_tags(self, hour: Part, minute: Minute, entry: str) -> None:
        """Adds the minute to the hour's sums by tag."""
        part, hour_s = replace(hour, table=TAGS), hour.hour_s or 0
        stored = self._files.rows(self._files.path(part), TAG_ROWS)
        if entry and stored.metadata.get(_ENTRY_KEY) == entry:
            return
        rows = pa.concat_tables([stored.rows, tag_table(minute, self._host_id)])
        sums = of_hour(rows, hour_s, (*KEYS, "tag", "value"))
        sums = bounded(sums, hour_s, self.retention.tag_values)
        self._files.write(part, sums, more=_entry_metadata(entry))

    def _write_samples(self, hour: Part, minute: Minute, entry: str) -> None:
        """Adds the minute's drawn queries to the hour's."""
        part = replace(hour, table=SAMPLES)
        before = self._files.rows(self._files.path(part), SAMPLE_ROWS)
        if entry and before.metadata.get(_ENTRY_KEY) == entry:
            return
        samples = sample_table(minute, self._host_id)
        room = max(0, MAX_SAMPLES - before.rows.num_rows)
        self.dropped_samples += max(0, samples.num_rows - room)
        rows = pa.concat_tables([before.rows, samples.slice(0, room)])
        self._files.write(part, rows, more=_entry_metadata(entry))

    def _stored_hour(self, part: Part) -> _Hour:
        """Returns what the hour's file has already: also after a restart, or a clock's step."""
        if self._hour is not None and self._hour.part == part:
            return self._hour
        stored = self._files.rows(self._files.path(part))
        old = self._files.path_in_schema_1(part)
        if not old.exists():
            return _Hour(part, stored.rows, entry=stored.metadata.get(_ENTRY_KEY, ""))
        rows = stored.rows
        if _INCLUDES_KEY not in stored.metadata:
            rows = pa.concat_tables([self._files.rows(old).rows, rows])
        return _Hour(part, rows, old, stored.metadata.get(_ENTRY_KEY, ""))

    def _close_hours(self, unclosed: set[Part], current: Part, now_s: int) -> None:
        due = [
            part
            for part in sorted(unclosed - {current}, key=lambda part: part.hour_s or 0)
            if part.hour_s is not None
            and not now_s - HOUR_S - GRACE_S < part.hour_s < now_s + AHEAD_S
        ]
        for part in due[:CLOSED_AT_ONCE]:
            self._close(part)
            unclosed.discard(part)

    def _close(self, part: Part) -> None:
        """Closes an hour, its rollups last: after a crash before, all of this is done again."""
        hour, hour_s = self._stored_hour(part), part.hour_s or 0
        if hour.rows.num_rows:
            sums = of_hour(hour.rows, hour_s)
            self._files.write(replace(part, table=HOURS), sums, closed=True)
            for table, schema in ((TAGS, TAG_ROWS), (SAMPLES, SAMPLE_ROWS)):
                beside = replace(part, table=table)
                stored = self._files.rows(self._files.path(beside), schema)
                if stored.rows.num_rows and not stored.closed:
                    self._files.write(beside, stored.rows, closed=True)
            rows = thinned(hour.rows, self.retention.minute_shapes)
            self._files.write(part, rows, closed=True, more=hour.more)
            self._closed.add(hour_s)
            self._bounded = None
        if hour.old is not None:
            hour.old.unlink(missing_ok=True)

    def _load(self, name: str, table: SlowTable) -> None:
        """Reads what an earlier agent wrote, also under the file name of schema 1."""
        part = Part(name, self._host, self._host_id)
        for path in (self._files.path(part), self._files.path_in_schema_1(part)):
            table_before = self._files.read(path)
            if table_before is None:
                continue
            if not table.load(table_before):
                self._files.put_aside(path)
                continue
            table.changed = path == self._files.path_in_schema_1(part)
            return

    def _write_slow(self, name: str, table: SlowTable) -> None:
        part = Part(name, self._host, self._host_id)
        self._files.write(part, table.table(self._host_id))
        table.changed = False
        self._files.path_in_schema_1(part).unlink(missing_ok=True)

    def _keep_bounds(self, now_s: int, current: Part) -> None:
        """Removes the oldest files, but never the hour that is being written.

        All files are looked at once an hour, and whenever there may be too much.
        """
        limit = self.retention.megabytes * _MEGABYTE
        path = self._files.path(current)
        self.bytes = self._settled_bytes + path.stat().st_size
        if self._bounded == (current, self.retention) and self.bytes <= limit:
            return
        files = self._files.sizes()
        self.bytes = sum(map(self._slow_size, self.tables)) + sum(size for _, size in files)
        first = datetime.fromtimestamp(now_s, UTC) - timedelta(days=self.retention.days)
        oldest = f"date={first:%Y-%m-%d}"
        for file, size in files:
            too_old = file.parent.parent.name < oldest
            if file != path and (too_old or self.bytes > limit):
                self._files.remove(file)
                self.bytes -= size
        self._settled_bytes = self.bytes - path.stat().st_size
        self._bounded = (current, self.retention)

    def _slow_size(self, name: str) -> int:
        with suppress(OSError):
            return self._files.path(Part(name, self._host, self._host_id)).stat().st_size
        return 0


def _entry_metadata(entry: str) -> dict[str, str]:
    return {_ENTRY_KEY: entry} if entry else {}
