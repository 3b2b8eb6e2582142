# SPDX-License-Identifier: Apache-2.0
"""Time ranges of questions about a fleet: converts ISO 8601 in any time zone to Unix time.

A range includes its beginning and excludes its end, so consecutive ranges count every minute once.
A minute belongs to the range that contains its beginning.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from qjoule.api import UsageError

_DURATION = re.compile(r"(\d{1,6})\s*(m|min|h|d|w)", re.ASCII)
_UNIT_S = {"m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
#: A leap second, which UTC has rarely and Unix time never.
_LEAP = re.compile(r"(?<=:\d\d):60(?:[.,]\d+)?")
_LONGEST_S = 3660 * 86_400


@dataclass(frozen=True)
class Range:
    """Unix times in seconds; `end_s` is excluded."""

    begin_s: int
    end_s: int

    def __str__(self) -> str:
        return f"{iso(self.begin_s)} to {iso(self.end_s)}"

    @property
    def seconds(self) -> int:
        return self.end_s - self.begin_s


@dataclass(frozen=True)
class Zone:
    """The time zone for times without one. `name` empty: this machine's."""

    name: str = ""

    def __post_init__(self) -> None:
        if self.name:
            try:
                ZoneInfo(self.name)
            except (ZoneInfoNotFoundError, ValueError, OSError):
                raise UsageError(
                    f"there is no time zone {self.name!r}: give one such as Europe/Berlin or UTC"
                ) from None

    def __str__(self) -> str:
        return self.name or "local time"

    def local(self, time_s: float) -> datetime:
        """Returns the local time in this zone, without a zone."""
        if self.name:
            return datetime.fromtimestamp(time_s, ZoneInfo(self.name)).replace(tzinfo=None, fold=0)
        return datetime.fromtimestamp(time_s).replace(fold=0)

    def unix(self, shown: datetime, fold: int) -> float:
        """Returns the Unix time. `fold` (PEP 495): 0 or 1 for the first or second of equal
        times."""
        zone = ZoneInfo(self.name) if self.name else None
        return shown.replace(tzinfo=zone, fold=fold).timestamp()


def iso(time_s: float) -> str:
    return f"{datetime.fromtimestamp(time_s, UTC):%Y-%m-%dT%H:%M:%S}Z"


def moment(text: str, zone: Zone, *, end: bool, notes: list[str]) -> float:
    """Returns the Unix time of an ISO 8601 text.

    A local time that occurs twice, when clocks are set back, means the first at the beginning of a
    range and the second at its end (`end`): the range includes both. A local time that is skipped,
    when clocks are set forward, means the moment of the change. Such choices are added to `notes`.

    Raises `UsageError` if the text is not a time.
    """
    leap = _LEAP.search(text)
    try:
        shown = datetime.fromisoformat(_LEAP.sub(":59", text.strip()))
        time_s = _unix(shown, zone, end=end, notes=notes, text=text)
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"{text!r} is no time: give one such as 2026-11-23T19:00, 2026-11-23T19:00+01:00 or "
            "2026-11-23"
        ) from None
    if leap:
        time_s = math.floor(time_s) + 1
        notes.append(f"{text}: Unix time has no leap seconds, so {iso(time_s)} is taken")
    return time_s


def _unix(shown: datetime, zone: Zone, *, end: bool, notes: list[str], text: str) -> float:
    if shown.tzinfo is not None:
        return shown.timestamp()
    first, second = zone.unix(shown, 0), zone.unix(shown, 1)
    if first == second:
        return first
    if first > second:  # PEP 495: the time is skipped
        change = _transition(zone, int(second), int(first))
        notes.append(
            f"{text} does not exist in {zone}: clocks are set forward at {iso(change)}, which is "
            "taken"
        )
        return change
    time_s = second if end else first
    which = "second" if end else "first"
    notes.append(
        f"{text} occurs twice in {zone}: the {which}, {iso(time_s)}, is taken; an offset such as "
        "+01:00 says which"
    )
    return time_s


def _transition(zone: Zone, before_s: int, after_s: int) -> int:
    """Returns when clocks are set, between two times."""

    def offset(time_s: int) -> timedelta:
        return zone.local(time_s) - datetime.fromtimestamp(time_s, UTC).replace(tzinfo=None)

    old = offset(before_s)
    while after_s - before_s > 1:
        middle = (before_s + after_s) // 2
        if offset(middle) == old:
            before_s = middle
        else:
            after_s = middle
    return after_s


def duration_s(text: str) -> int:
    """Parses `24h`, `90min` or `7d` as seconds. Raises `UsageError` for anything else."""
    match = _DURATION.fullmatch(text.strip())
    seconds = int(match[1]) * _UNIT_S[match[2]] if match else 0
    if not 0 < seconds <= _LONGEST_S:
        raise UsageError(f"{text!r} is no duration: give one such as 90min, 24h or 7d")
    return seconds


def time_range(
    begin: str | None, end: str | None, last: str | None, zone: Zone, now_s: float
) -> tuple[Range, list[str]]:
    """Returns the range that the options name, and notes about it for the reader.

    Without options it is the last 24 hours; with a beginning only it ends now.

    Raises `UsageError` if they contradict each other.
    """
    notes: list[str] = []
    if last is not None and begin is not None and end is not None:
        raise UsageError("--from, --to and --last: give two of them at most")
    end_s = now_s if end is None else moment(end, zone, end=True, notes=notes)
    if begin is not None:
        begin_s = moment(begin, zone, end=False, notes=notes)
        end_s = begin_s + duration_s(last) if last is not None else end_s
    else:
        begin_s = end_s - duration_s(last or "24h")
    if end_s <= begin_s:
        raise UsageError(
            f"the range is empty: it would begin at {iso(begin_s)} and end at {iso(end_s)}"
        )
    if begin_s < 0 or end_s - begin_s > _LONGEST_S:
        raise UsageError("the range is longer than ten years, or begins before 1970")
    return Range(math.ceil(begin_s), math.ceil(end_s)), notes
