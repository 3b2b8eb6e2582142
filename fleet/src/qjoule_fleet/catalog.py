# SPDX-License-Identifier: Apache-2.0
"""Which parts of a dataset answer a question about a range of time, and which were left out.

An hour that lies wholly in the range is read from `hours/`, where each series has one row. Hours at
the edges, and hours whose sums are not there yet, are read by minute from `rollups/`. Footers are
read only of parts that are needed. Nothing is left out silently: every refused part is named.
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
from qjoule_fleet.footers import Checked, check, named
from qjoule_fleet.times import Range

#: Hex digits of an id that are shown; as many more as it takes to tell hosts apart.
_SHOWN = 6


@dataclass
class Hosts:
    """The hosts whose parts a listing named."""

    _ids: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def add(self, part: Part) -> None:
        self._ids[part.host].add(part.host_id)

    def key(self, part: Part) -> str:
        """The same for all parts of one machine: its id.

        An agent of schema 1 wrote none. Its parts belong to the machine that has the name now, if
        there is just one.
        """
        ids = self._ids[part.host] - {""}
        if part.host_id or len(ids) != 1:
            return part.host_id or f"={part.host}"
        return next(iter(ids))

    def label(self, part: Part) -> str:
        """The name; with the beginning of the id where several machines have the name."""
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

    def of_slot(self, writer: str) -> str:
        """The label of a host id, or of `=` and a name."""
        if writer.startswith("="):
            return self.label(Part("", writer[1:], ""))
        named = (host for host, ids in self._ids.items() if writer in ids)
        return self.label(Part("", next(named, writer), writer))


#: Footers that are read at a time: a remote filesystem answers slowly.
_AT_A_TIME = 16
_DAY_S = 86_400
#: Who wrote a part (a host id, or `=` and the name with schema 1), and its hour.
_Slot = tuple[str, int]
_Named = Mapping[_Slot, list[tuple[File, Part]]]


@dataclass
class Selection:
    """What answers a question.

    `range`: what is answered, which may begin or end some minutes after what was asked for.
    `missing`: hosts' hours (Unix time) that no part answers for.
    """

    range: Range
    hosts: Hosts = field(default_factory=Hosts)
    hourly: list[Checked] = field(default_factory=list)  #: of `hours`, or of `tags`
    edges: list[Checked] = field(default_factory=list)  #: of `rollups`
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
    """A dataset's parts; each footer is read once."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._verdicts: dict[File, Checked | Refused] = {}

    def sums(self, asked: Range, *, by_minute: Collection[_Slot] = ()) -> Selection:
        """Parts whose rows add up to the range. `by_minute`: host ids and hours that are read from
        `rollups`, because their minutes differ in what is asked for."""
        selection = self._selection(asked)
        sums = self._named(HOURS, selection)
        minutes = self._named(ROLLUPS, selection)
        every = {*sums, *minutes}
        wanted = {slot for slot in every if _inside(slot[1], asked) and slot not in by_minute}
        hourly = self._usable({slot: sums[slot] for slot in sums if slot in wanted}, selection)
        included = self._included(minutes, selection)
        by_minute_parts = {
            slot: minutes[slot] for slot in minutes if slot not in hourly and slot not in included
        }
        edges = self._usable(by_minute_parts, selection)
        selection.hourly, selection.edges = list(hourly.values()), list(edges.values())
        _round(selection)
        _add_gaps(selection, every - {*hourly, *edges, *included})
        return selection

    def minutes(self, asked: Range) -> Selection:
        """All parts of `rollups` that have minutes of the range."""
        selection = self._selection(asked)
        named = self._named(ROLLUPS, selection)
        included = self._included(named, selection)
        named = {slot: parts for slot, parts in named.items() if slot not in included}
        parts = self._usable(named, selection)
        selection.edges = list(parts.values())
        _add_gaps(selection, named.keys() - parts.keys())
        return selection

    def tags(self, asked: Range) -> Selection:
        """Parts of `tags`, of hours that lie wholly in the range."""
        selection = self._selection(asked)
        named = self._named(TAGS, selection)
        inside = {slot: parts for slot, parts in named.items() if _inside(slot[1], asked)}
        selection.hourly = list(self._usable(inside, selection).values())
        return selection

    def slow(self, asked: Range) -> Selection:
        """Parts of the tables that change slowly, alone."""
        return self._selection(asked)

    def span(self) -> Range | None:
        """From the first to the last day that has parts; None: there are none."""
        names = [
            directory for table in (ROLLUPS, HOURS) for directory in self.files.directories(table)
        ]
        days = [day for day in map(_day, names) if day is not None]
        return Range(min(days), max(days) + _DAY_S) if days else None

    def _selection(self, asked: Range) -> Selection:
        selection = Selection(asked)
        for table in SLOW:
            named = _by_slot(self.files.walk(table, selection.refused), selection)
            selection.slow[table] = list(self._usable(named, selection).values())
        return selection

    def _named(self, table: str, selection: Selection) -> _Named:
        """Parts of the range, from their paths."""
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

    def _included(self, minutes: _Named, selection: Selection) -> set[_Slot]:
        """Parts of schema 1 whose rows an agent of today took over into its own part."""
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
        """The parts that can be read; of duplicates the first by path."""
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
    """Parts by who wrote them and hour (0 in tables without hours). Two for one: a duplicate."""
    result: dict[_Slot, list[tuple[File, Part]]] = defaultdict(list)
    for file in files:
        part = named(file)
        if isinstance(part, Refused):
            selection.refused.append(part)
        else:
            selection.hosts.add(part)
            result[part.host_id or f"={part.host}", part.hour_s or 0].append((file, part))
    return dict(result)


def _add_gaps(selection: Selection, unanswered: Collection[_Slot]) -> None:
    """Adds hours after a host's first one in the range without a part, and hosts without any part.

    A host that stops is noticed until the last hour that any host has.
    """
    have: dict[str, set[int]] = defaultdict(set)
    for checked in selection.parts:
        have[selection.hosts.label(checked.part)].add(checked.part.hour_s or 0)
    latest = max((max(hours) for hours in have.values()), default=0)
    gone = {(selection.hosts.of_slot(slot), hour) for slot, hour in unanswered}
    for host, hours in have.items():
        gone |= {(host, hour) for hour in range(min(hours), latest + 1, HOUR_S)} - {
            (host, hour) for hour in hours
        }
    selection.missing = sorted(gap for gap in gone if gap[1] not in have.get(gap[0], ()))
    selection.silent = sorted(selection.hosts.labels() - have.keys() - {host for host, _ in gone})


def _round(selection: Selection) -> None:
    """Moves the range to whole ten minutes of past hours, where rare statements have one row each.

    Both ends go up, so ranges that follow each other still count every row once.
    """
    asked = selection.range
    past = {checked.part.hour_s for checked in selection.edges if checked.closed}
    ends = [
        -(-time_s // SPAN_S) * SPAN_S if hour_of(time_s) in past else time_s
        for time_s in (asked.begin_s, asked.end_s)
    ]
    if ends[0] >= ends[1]:
        raise UsageError(f"past hours are kept by {SPAN_S // 60} minutes: give a longer range")
    selection.range = Range(*ends)
    if selection.range != asked:
        minutes = f"past hours are kept by {SPAN_S // 60} minutes"
        selection.notes.append(f"{minutes}: {selection.range} is taken")


def _inside(hour_s: int, asked: Range) -> bool:
    return asked.begin_s <= hour_s and hour_s + HOUR_S <= asked.end_s


def _day(directory: str) -> int | None:
    """The Unix time at which a directory's day begins; None if it is not one of a day."""
    try:
        day = datetime.strptime(directory, "date=%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(day.timestamp())
