# SPDX-License-Identifier: Apache-2.0
"""Selects the parts of a dataset that answer a question about a range of time.

An hour wholly in the range is read from `hours/`, which has one row per series. Hours at the edges,
and hours without sums yet, are read by minute from `rollups/`. Only footers of needed parts are
read. Nothing is left out silently: every refused part is named.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime

from qjoule.api import UsageError
from qjoule.api.rollups import HOUR_S, HOURS, ROLLUPS, SLOW, SPAN_S, TAGS, Part, hour_of
from qjoule_fleet.files import File, Files, Refused
from qjoule_fleet.footers import Checked, check, part_of_path
from qjoule_fleet.times import Range

#: Hex digits of an id that are shown; more if needed to distinguish hosts.
_SHOWN = 6


@dataclass
class Hosts:
    """The hosts of all listed parts."""

    _ids: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def add(self, part: Part) -> None:
        self._ids[part.host].add(part.host_id)

    def key(self, part: Part) -> str:
        """Returns the machine's id, which is the same for all of its parts.

        Agents of schema 1 wrote no id. Their parts belong to the machine that has the name now, if
        there is only one.
        """
        ids = self._ids[part.host] - {""}
        if part.host_id or len(ids) != 1:
            return part.host_id or f"={part.host}"
        return next(iter(ids))

    def label(self, part: Part) -> str:
        """Returns the host's name, with the beginning of its id if several machines have the
        name."""
        ids = self._ids[part.host] - {""}
        if len(ids) < 2:
            return part.host
        if not part.host_id:
            return f"{part.host}#?"
        digits = _SHOWN
        while len({host_id[:digits] for host_id in ids}) < len(ids):
            digits += 1
        return f"{part.host}#{part.host_id[:digits]}"

    def labels(self) -> set[str]:
        return {
            self.label(Part("", host, host_id))
            for host, ids in self._ids.items()
            for host_id in ids
        }

    def label_of_writer(self, writer: str) -> str:
        """Returns the label of a host id, or of `=` and a name."""
        if writer.startswith("="):
            return self.label(Part("", writer[1:], ""))
        named = (host for host, ids in self._ids.items() if writer in ids)
        return self.label(Part("", next(named, writer), writer))


#: Footers that are read in parallel, because remote filesystems answer slowly.
_AT_A_TIME = 16
_DAY_S = 86_400
#: The writer of a part (a host id, or `=` and the name with schema 1), and its hour.
_Slot = tuple[str, int]
_Named = Mapping[_Slot, list[tuple[File, Part]]]


@dataclass
class Selection:
    """The parts that answer a question.

    `range`: the answered range, which may begin or end some minutes after the requested one.
    `missing`: hosts' hours (Unix time) without a part.
    """

    range: Range
    hosts: Hosts = field(default_factory=Hosts)
    hourly: list[Checked] = field(default_factory=list)  #: parts of `hours`, or of `tags`
    edges: list[Checked] = field(default_factory=list)  #: parts of `rollups`
    slow: dict[str, list[Checked]] = field(default_factory=dict)
    refused: list[Refused] = field(default_factory=list)
    missing: list[tuple[str, int]] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)  #: known hosts without any part
    notes: list[str] = field(default_factory=list)

    @property
    def parts(self) -> list[Checked]:
        return [*self.hourly, *self.edges]

    @property
    def bytes(self) -> int:
        return sum(part.size for part in self.parts)


class Catalog:
    """The parts of a dataset. Reads each footer once."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._verdicts: dict[File, Checked | Refused] = {}

    def sums(self, wanted_range: Range, *, by_minute: Collection[_Slot] = ()) -> Selection:
        """Selects parts whose rows add up to the range. `by_minute`: host ids and hours to read
        from `rollups`, because a key of the question changes within the hour."""
        selection = self._selection(wanted_range)
        sums = self._named(HOURS, selection)
        minutes = self._named(ROLLUPS, selection)
        every = {*sums, *minutes}
        wanted = {
            slot for slot in every if _inside(slot[1], wanted_range) and slot not in by_minute
        }
        hourly = self._usable({slot: sums[slot] for slot in sums if slot in wanted}, selection)
        included = self._superseded(minutes, selection)
        by_minute_parts = {
            slot: minutes[slot] for slot in minutes if slot not in hourly and slot not in included
        }
        edges = self._usable(by_minute_parts, selection)
        selection.hourly, selection.edges = list(hourly.values()), list(edges.values())
        _round_range(selection)
        _add_gaps(selection, every - {*hourly, *edges, *included})
        return selection

    def minutes(self, wanted_range: Range) -> Selection:
        """Selects all parts of `rollups` that have minutes of the range."""
        selection = self._selection(wanted_range)
        named = self._named(ROLLUPS, selection)
        included = self._superseded(named, selection)
        named = {slot: parts for slot, parts in named.items() if slot not in included}
        parts = self._usable(named, selection)
        selection.edges = list(parts.values())
        _add_gaps(selection, named.keys() - parts.keys())
        return selection

    def tags(self, wanted_range: Range) -> Selection:
        """Selects parts of `tags`, of hours that lie wholly in the range."""
        selection = self._selection(wanted_range)
        named = self._named(TAGS, selection)
        inside = {slot: parts for slot, parts in named.items() if _inside(slot[1], wanted_range)}
        selection.hourly = list(self._usable(inside, selection).values())
        return selection

    def slow(self, wanted_range: Range) -> Selection:
        """Selects only parts of the tables that change slowly."""
        return self._selection(wanted_range)

    def span(self) -> Range | None:
        """Returns the range from the first to the last day with parts, or None."""
        names = [
            directory for table in (ROLLUPS, HOURS) for directory in self.files.directories(table)
        ]
        days = [day for day in map(_day, names) if day is not None]
        return Range(min(days), max(days) + _DAY_S) if days else None

    def _selection(self, wanted_range: Range) -> Selection:
        selection = Selection(wanted_range)
        for table in SLOW:
            named = _by_slot(self.files.walk(table, selection.refused), selection)
            selection.slow[table] = list(self._usable(named, selection).values())
        return selection

    def _named(self, table: str, selection: Selection) -> _Named:
        """Finds parts of the range by their paths."""
        files: list[File] = []
        first, last = hour_of(selection.range.begin_s), selection.range.end_s
        for directory in self.files.directories(table):
            day = _day(directory)
            if day is None:
                selection.refused.append(
                    Refused(f"{table}/{directory}", "its name is not a date's")
                )
            elif day < last and day + _DAY_S > first:
                files += self.files.walk(f"{table}/{directory}", selection.refused)
        named = _by_slot(files, selection)
        return {slot: parts for slot, parts in named.items() if first <= slot[1] < last}

    def _superseded(self, minutes: _Named, selection: Selection) -> set[_Slot]:
        """Returns parts of schema 1 whose rows a newer agent copied into its own part."""
        old = {slot for slot in minutes if slot[0].startswith("=")}
        names = {(writer[1:], hour) for writer, hour in old}
        beside = {
            slot: parts
            for slot, parts in minutes.items()
            if slot not in old and any((part.host, slot[1]) in names for _, part in parts)
        }
        taken = [
            checked.part for checked in self._usable(beside, selection).values() if checked.includes
        ]
        return {(f"={part.host}", part.hour_s or 0) for part in taken} & old

    def _usable(self, wanted: _Named, selection: Selection) -> dict[_Slot, Checked]:
        """Returns the readable parts; of duplicates the first by path."""
        every = [part for parts in wanted.values() for part in parts]
        unknown = [part for part in every if part[0] not in self._verdicts]
        with ThreadPoolExecutor(_AT_A_TIME) as pool:
            verdicts = pool.map(lambda part: check(self.files, *part), unknown)
            for (file, _), verdict in zip(unknown, verdicts, strict=True):
                self._verdicts[file] = verdict
        usable: dict[_Slot, Checked] = {}
        for slot, parts in wanted.items():
            for file, _ in sorted(parts, key=lambda pair: pair[0].path):
                verdict = self._verdicts[file]
                if isinstance(verdict, Refused):
                    if verdict not in selection.refused:
                        selection.refused.append(verdict)
                elif slot in usable:
                    first = usable[slot].path
                    reason = f"it has the host id and the hour of {first}"
                    selection.refused.append(Refused(file.path, reason, verdict.part.host))
                else:
                    usable[slot] = verdict
        return usable


def _by_slot(files: Iterable[File], selection: Selection) -> _Named:
    """Groups parts by writer and hour (0 in tables without hours). Several for one are
    duplicates."""
    result: dict[_Slot, list[tuple[File, Part]]] = defaultdict(list)
    for file in files:
        part = part_of_path(file)
        if isinstance(part, Refused):
            selection.refused.append(part)
        else:
            selection.hosts.add(part)
            result[part.host_id or f"={part.host}", part.hour_s or 0].append((file, part))
    return dict(result)


def _add_gaps(selection: Selection, unanswered: Collection[_Slot]) -> None:
    """Adds hours without a part after a host's first hour in the range, and hosts without parts.

    The search ends with the last hour that any host has.
    """
    have: dict[str, set[int]] = defaultdict(set)
    for checked in selection.parts:
        have[selection.hosts.label(checked.part)].add(checked.part.hour_s or 0)
    latest = max((max(hours) for hours in have.values()), default=0)
    gone = {(selection.hosts.label_of_writer(slot), hour) for slot, hour in unanswered}
    for host, hours in have.items():
        gone |= {(host, hour) for hour in range(min(hours), latest + 1, HOUR_S)} - {
            (host, hour) for hour in hours
        }
    selection.missing = sorted(gap for gap in gone if gap[1] not in have.get(gap[0], ()))
    selection.silent = sorted(selection.hosts.labels() - have.keys() - {host for host, _ in gone})


def _round_range(selection: Selection) -> None:
    """Moves the range to whole ten minutes of past hours, where rare statements have one row each.

    Both ends are rounded up, so consecutive ranges still count every row once.
    """
    wanted_range = selection.range
    past = {checked.part.hour_s for checked in selection.edges if checked.closed}
    ends = [
        -(-time_s // SPAN_S) * SPAN_S if hour_of(time_s) in past else time_s
        for time_s in (wanted_range.begin_s, wanted_range.end_s)
    ]
    if ends[0] >= ends[1]:
        raise UsageError(f"past hours are kept by {SPAN_S // 60} minutes: give a longer range")
    selection.range = Range(*ends)
    if selection.range != wanted_range:
        minutes = f"past hours are kept by {SPAN_S // 60} minutes"
        selection.notes.append(f"{minutes}: {selection.range} is taken")


def _inside(hour_s: int, wanted_range: Range) -> bool:
    return wanted_range.begin_s <= hour_s and hour_s + HOUR_S <= wanted_range.end_s


def _day(directory: str) -> int | None:
    """Returns the Unix time at which a directory's day begins; None if it is not a day's."""
    try:
        day = datetime.strptime(directory, "date=%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(day.timestamp())
