# SPDX-License-Identifier: Apache-2.0
"""Ships closed parts of a store that the destination does not have.

The destination's manifests list shipped parts, so any shipper can continue where another one ended,
at any moment: a part without a line is shipped again unchanged. Closed parts never change; a part
that did is reported, and not shipped again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from qjoule.api import QjouleError
from qjoule.api.rollups import SLOW, TABLES, Part, manifest_path, part_at
from qjoule_fleet.ship import local_parts
from qjoule_fleet.ship.destination import Destination, GaveUp, RetryPolicy
from qjoule_fleet.ship.local_parts import ValidatedPart, Waiting, is_open, read_part

#: Parts after which the manifest is written; it is also written at the end of a pass.
PER_MANIFEST = 12
#: A pass ends after so many consecutive failures.
FAILURES = 3
_CHANGED = (
    "it is not what was shipped: it changed after its hour was closed, or another host has this "
    "host's name and id"
)


class Trouble(NamedTuple):
    path: str
    why: str


@dataclass
class Report:
    """The result of one pass. `shipped` and `waiting`: paths relative to the store."""

    shipped: list[str] = field(default_factory=list)
    bytes: int = 0
    there: int = 0  #: parts that had been shipped before
    open: int = 0  #: parts whose hour is not over
    waiting: list[str] = field(default_factory=list)  #: closed, but not shipped yet
    waiting_bytes: int = 0
    left_out: int = 0  #: number of the oldest waiting parts beyond `most_bytes`
    unknown: int = 0  #: parts whose state at the destination is unknown
    lost: list[str] = field(default_factory=list)  #: removed by the store while they waited
    refused: list[Trouble] = field(default_factory=list)  #: damaged or changed in the store
    failed: list[Trouble] = field(default_factory=list)  #: could not be written
    damaged_lines: int = 0  #: number in manifests

    @property
    def succeeded(self) -> bool:
        return not (self.lost or self.refused or self.failed or self.left_out)


@dataclass(frozen=True)
class _LocalPart:
    part: Part
    path: Path
    size: int
    mtime_ns: int

    @property
    def name(self) -> str:
        return self.part.path


class Shipper:
    """Ships from `store`, which it only reads. `most_bytes`: bound on waiting parts, beyond which
    the oldest are left out; `state`: a directory that stores the list of waiting parts."""

    def __init__(
        self,
        store: Path,
        to: Destination,
        *,
        retry_policy: RetryPolicy = RetryPolicy(),  # noqa: B008 (it cannot change)
        most_bytes: int = 1 << 30,
        state: Path | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._store, self._to, self._retry_policy = store, to, retry_policy
        self._most_bytes, self._now = most_bytes, now
        self._manifests: dict[str, dict[str, local_parts.Entry]] = {}
        self._unsaved: dict[str, int] = {}
        self._waiting = Waiting(state, store, to.shown)

    def ship(self) -> Report:
        """Makes one pass. Raises `QjouleError` if the store cannot be read."""
        report = Report()
        parts = list(self._parts())
        due: list[_LocalPart] = []
        looked = 0
        try:
            for part in parts:
                self._classify(part, due, report)
                looked += 1
            self._limit(due, report)
            self._ship(due, report)
        except GaveUp as trouble:
            report.failed.append(Trouble(self._to.shown, str(trouble)))
        self._save_all(report)
        shipped = set(report.shipped)
        unshipped = [part for part in due if part.name not in shipped]
        report.unknown = len(parts) - looked
        report.waiting = [part.name for part in unshipped]
        report.waiting_bytes = sum(part.size for part in unshipped)
        vanished = self._waiting.vanished({part.name for part in parts})
        report.lost = [path for path in vanished if looked == len(parts) and self._lost(path)]
        unknown = [part.name for part in parts[looked:]] + (vanished if report.unknown else [])
        self._waiting.keep(sorted({*report.waiting, *unknown}))
        return report

    def _parts(self) -> Iterator[_LocalPart]:
        """Yields the store's parts, oldest hours first, then the tables that change slowly."""
        parts: list[_LocalPart] = []
        if not self._store.is_dir():
            raise QjouleError(f"{self._store}: no store: name the agent's store.path with --store")
        try:
            for table in TABLES:
                for path in _files_below(self._store / table):
                    part = part_at(path.relative_to(self._store).as_posix())
                    if part is not None and part.host_id and path.is_file():
                        about = path.stat()
                        parts.append(_LocalPart(part, path, about.st_size, about.st_mtime_ns))
        except PermissionError as error:
            raise QjouleError(
                f"{error.filename}: {error.strerror}: let the store's group enter it "
                f"(chmod g+rx {self._store}), start the agent again, and call this by sudo"
            ) from None
        except FileNotFoundError:  # it was just removed: the next pass finds the others
            pass
        yield from sorted(
            parts, key=lambda local: (local.part.hour_s is None, local.part.hour_s or 0)
        )

    def _classify(self, local: _LocalPart, due: list[_LocalPart], report: Report) -> None:
        """Adds a part to `due` if it must be shipped, else to the report."""
        entry = self._entries(local.part, report).get(local.name)
        if entry is None:
            if is_open(local.part, local.path):
                report.open += 1
            else:
                due.append(local)
        elif (entry.size, entry.mtime_ns) == (local.size, local.mtime_ns):
            report.there += 1
        elif local.part.table in SLOW:
            due.append(local)
        else:
            self._compare(local, entry, report)

    @staticmethod
    def _compare(local: _LocalPart, entry: local_parts.Entry, report: Report) -> None:
        """Reports a part that has changed, or is damaged, since it was shipped."""
        try:
            validated = read_part(local.part, local.path)
        except FileNotFoundError:
            return
        if validated.wrong:
            report.refused.append(Trouble(local.name, validated.wrong))
        elif validated.sha256 == entry.sha256:
            report.there += 1
        else:
            report.refused.append(Trouble(local.name, _CHANGED))

    def _limit(self, due: list[_LocalPart], report: Report) -> None:
        """Excludes the oldest parts from this pass if too much waits."""
        total = 0
        for number in range(len(due) - 1, -1, -1):
            total += due[number].size
            if total > self._most_bytes:
                report.left_out = number + 1
                return

    def _ship(self, due: list[_LocalPart], report: Report) -> None:
        failures = 0
        for local in due[report.left_out :]:
            try:
                validated = read_part(local.part, local.path)
            except FileNotFoundError:
                continue
            if validated.wrong:
                report.refused.append(Trouble(local.name, validated.wrong))
                continue
            try:
                self._put(local, validated, report)
                failures = 0
            except GaveUp as trouble:
                report.failed.append(Trouble(local.name, str(trouble)))
                failures += 1
                if failures >= FAILURES:
                    return

    def _lost(self, path: str) -> bool:
        """True if a part that waited was removed from the store without being shipped."""
        part = part_at(path)
        try:
            return part is not None and path not in self._entries(part, Report())
        except GaveUp:
            return False

    def _put(self, local: _LocalPart, validated: ValidatedPart, report: Report) -> None:
        self._retry_policy.call(lambda: self._to.put(local.name, validated.content))
        report.shipped.append(local.name)
        report.bytes += len(validated.content)
        entry = local_parts.Entry(
            local.name,
            len(validated.content),
            validated.sha256,
            local.mtime_ns,
            f"{self._now():%Y-%m-%dT%H:%M:%SZ}",
        )
        where = manifest_path(local.part)
        self._manifests[where][local.name] = entry
        self._unsaved[where] = self._unsaved.get(where, 0) + 1
        if self._unsaved[where] >= PER_MANIFEST:
            self._save(where)

    def _entries(self, part: Part, report: Report) -> dict[str, local_parts.Entry]:
        """Returns the destination's manifest of this part's host and day."""
        where = manifest_path(part)
        if where not in self._manifests:
            content = self._retry_policy.call(lambda: self._to.read(where))
            entries, damaged = local_parts.parse(content or b"")
            report.damaged_lines += damaged
            self._manifests[where] = {
                path: entry for path, entry in entries.items() if _belongs(path, where)
            }
        return self._manifests[where]

    def _save(self, where: str) -> None:
        content = local_parts.text(self._manifests[where].values())
        self._retry_policy.call(lambda: self._to.put(where, content))
        del self._unsaved[where]

    def _save_all(self, report: Report) -> None:
        for where in list(self._unsaved):
            try:
                self._save(where)
            except GaveUp as trouble:
                report.failed.append(Trouble(where, str(trouble)))
                return


def _files_below(directory: Path) -> Iterator[Path]:
    """Like `Path.glob`, but raises `PermissionError` if a directory may not be read."""

    def unreadable(error: OSError) -> None:
        if isinstance(error, PermissionError):
            raise error

    for at, _, names in os.walk(directory, onerror=unreadable):
        yield from (Path(at, name) for name in names)


def _belongs(path: str, where: str) -> bool:
    part = part_at(path)
    return part is not None and manifest_path(part) == where
