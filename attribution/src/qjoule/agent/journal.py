# SPDX-License-Identifier: Apache-2.0
"""A queue of minutes for the store's writer (`agent.store_writer`), and the writer's results.

Arrow would take 40 MB in the engine all the time. So the engine only writes each minute to a
separate file, and a short-lived process adds these to the store's Parquet files. A file's name is
in the metadata of each part that has its minute, so a writer that was killed adds it once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from qjoule.agent.minute import Minute
from qjoule.agent.rollup_layout import Part
from qjoule.agent.store_directory import MODE, locked, not_ours
from qjoule.trace.durable import write_whole

WAITING = "waiting"  #: the directory of the files (mode 0700); the sample's rows name users
_DONE = ".written"
#: Minutes that wait for a writer that fails; the oldest beyond these are dropped and counted.
MAX_WAITING = 60


@dataclass(frozen=True)
class Retention:
    """Bounds of the store. `minute_shapes`: statements of which a closed hour has rows by minute.
    `tag_values`: values of each tag that an hour names."""

    days: int
    megabytes: int
    minute_shapes: int = 30
    tag_values: int = 100


#: The table, a row's values, and since when they hold (Unix time).
Described = tuple[str, tuple[str, ...], int]


@dataclass(frozen=True)
class Entry:
    """One minute, and what is written with it. `main`: the domain of the queries' energies."""

    host: str
    kept: Retention
    main: str
    minute: Minute
    news: list[Described]


@dataclass(frozen=True)
class Outcome:
    """Totals of all writers. `bytes`, and `trouble` (why the last minute could not be written), are
    the last writer's."""

    written: int = 0  #: minutes
    failures: int = 0  #: minutes that could not be written
    damaged: int = 0  #: files that were put aside
    moved: int = 0  #: minutes that belonged to a closed hour, and are in a later one
    dropped_samples: int = 0  #: drawn queries that an hour's file had no room for
    bytes: int = 0
    trouble: str = ""

    def then(self, later: Outcome) -> Outcome:
        names = ("written", "failures", "damaged", "moved", "dropped_samples")
        return replace(
            later, **{name: getattr(self, name) + getattr(later, name) for name in names}
        )


@dataclass
class StoreState:
    """The state of the store's files, left for the next writer, which need not scan them then."""

    open: list[Part] = field(default_factory=list)  #: parts that are not closed
    closed: list[int] = field(default_factory=list)  #: hours of closed parts
    settled_bytes: int = 0  #: of all files but the current hour's
    bounded: tuple[Part, Retention] | None = None  #: current part and bounds of the last full scan


@dataclass(frozen=True)
class _Done:
    outcome: Outcome
    known: StoreState


class Journal:
    """One agent's queue. No other agent can use the same store before `close`."""

    def __init__(self, path: Path, host: str, retention: Retention) -> None:
        """Raises `QjouleError`: not ours to write, or another agent has it."""
        self.path, self.host, self.retention = path, host, retention
        self._lock = locked(path)
        try:
            (path / WAITING).mkdir(mode=0o700, exist_ok=True)
            (path / _DONE).unlink(missing_ok=True)
            last = max((file.name for file in waiting(path)), default="0-")
        except OSError as error:
            os.close(self._lock)
            raise not_ours(path, error) from None
        self._number, self._run = int(last.partition("-")[0]), os.urandom(4).hex()

    def add(self, minute: Minute, main: str, news: list[Described]) -> int:
        """Queues a minute; returns how many older ones were dropped for it. Raises `OSError`."""
        self._number += 1
        path = self.path / WAITING / f"{self._number:08}-{self._run}"
        content = msgspec.msgpack.encode(Entry(self.host, self.retention, main, minute, news))
        write_whole(path, content, durable=False, mode=MODE)
        beyond = list(waiting(self.path))[:-MAX_WAITING]
        for file in beyond:
            file.unlink(missing_ok=True)
        return len(beyond)

    def outcome(self) -> Outcome:
        """The outcome of the writer that has just ended. Raises `OSError` if it has left none."""
        done = _done(self.path)
        if done is None:
            raise OSError(0, "its writer failed")
        return done.outcome

    def close(self) -> None:
        os.close(self._lock)


def waiting(path: Path) -> Iterator[Path]:
    """The minutes that wait in a store, oldest first."""
    names = sorted(file.name for file in os.scandir(path / WAITING))
    return (path / WAITING / name for name in names if name[:8].isdecimal() and name[8:9] == "-")


def read_entry(path: Path) -> Entry:
    """Reads a minute. Raises `OSError`, or `ValueError` if no engine wrote the file."""
    entry: Entry = msgspec.msgpack.decode(path.read_bytes(), type=Entry)
    for _ in entry.minute.sampled():
        pass  # damaged rows are found now, before something of the minute is written
    return entry


def take_state(path: Path) -> StoreState | None:
    """Takes the state that the last writer left; None if it may be out of date."""
    done = _done(path)
    with suppress(OSError):
        (path / _DONE).unlink()
    return None if done is None else done.known


def leave(path: Path, outcome: Outcome, known: StoreState) -> None:
    """Leaves results for the engine, and state for the next writer. Raises `OSError`."""
    content = msgspec.msgpack.encode(_Done(outcome, known))
    write_whole(path / _DONE, content, durable=False, mode=MODE)


def _done(path: Path) -> _Done | None:
    with suppress(OSError, ValueError):
        done: _Done = msgspec.msgpack.decode((path / _DONE).read_bytes(), type=_Done)
        return done
    return None
