# SPDX-License-Identifier: Apache-2.0
"""Time ranges of questions: zones, changes of clocks, leap seconds, and what is refused."""

from __future__ import annotations

import time

import pytest

from qjoule.errors import UsageError
from qjoule.fleet.times import Range, Zone, duration_s, iso, moment, time_range

BERLIN = Zone("Europe/Berlin")
NOW_S = 1_795_000_000.5


def at(text: str, zone: Zone = BERLIN, *, end: bool = False) -> tuple[str, list[str]]:
    notes: list[str] = []
    return iso(moment(text, zone, end=end, notes=notes)), notes


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2026-11-23T19:00", "2026-11-23T18:00:00Z"),
        ("2026-07-23T19:00", "2026-07-23T17:00:00Z"),
        ("2026-11-23", "2026-11-22T23:00:00Z"),
        ("2026-11-23T19:00Z", "2026-11-23T19:00:00Z"),
        ("2026-11-23T19:00-05:00", "2026-11-24T00:00:00Z"),
        ("20261123T190000+0530", "2026-11-23T13:30:00Z"),
    ],
)
def test_times_are_read_in_their_zone(text: str, found: str) -> None:
    assert at(text) == (found, [])


def test_a_time_that_clocks_leave_out_is_the_moment_of_the_change() -> None:
    for end in (False, True):
        found, notes = at("2026-03-29T02:30", end=end)
        assert found == "2026-03-29T01:00:00Z"
        assert notes == [
            "2026-03-29T02:30 does not exist in Europe/Berlin: clocks are set forward at "
            "2026-03-29T01:00:00Z, which is taken"
        ]


def test_of_a_time_that_occurs_twice_a_range_has_both() -> None:
    first, notes = at("2026-10-25T02:30")
    second, _ = at("2026-10-25T02:30", end=True)
    assert (first, second) == ("2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z")
    assert "occurs twice in Europe/Berlin: the first" in notes[0]
    assert at("2026-10-25T02:30+01:00") == ("2026-10-25T01:30:00Z", [])


def test_a_local_day_may_have_23_or_25_hours() -> None:
    for day, after, hours in (("03-29", "03-30", 23), ("10-25", "10-26", 25)):
        found, _ = time_range(f"2026-{day}", f"2026-{after}", None, BERLIN, NOW_S)
        assert found.seconds == hours * 3600


def test_midnight_that_clocks_leave_out() -> None:
    assert at("2018-11-04", Zone("America/Sao_Paulo"))[0] == "2018-11-04T03:00:00Z"


def test_this_machines_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        assert at("2026-07-23T19:00", Zone())[0] == "2026-07-23T17:00:00Z"
        assert "does not exist in local time" in at("2026-03-29T02:30", Zone())[1][0]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_leap_second_is_the_next_second() -> None:
    found, notes = at("2016-12-31T23:59:60Z")
    assert found == "2017-01-01T00:00:00Z"
    assert "Unix time has no leap seconds" in notes[0]


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2026-13-01", "25:00", "2026-11-23T24:61", "9999999999", "\x1b[31m"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no time"):
        at(text)


def test_an_unknown_zone_is_refused() -> None:
    for name in ("Mars/Olympus", "../../etc/passwd", "/etc/passwd"):
        with pytest.raises(UsageError, match="there is no time zone"):
            Zone(name)


def test_ranges() -> None:
    zone = Zone("UTC")
    begin, end = "2026-11-23T10:00", "2026-11-23T12:00"
    whole = Range(1_795_428_000, 1_795_435_200)
    assert time_range(begin, end, None, zone, NOW_S)[0] == whole
    assert time_range(begin, None, "2h", zone, NOW_S)[0] == whole
    assert time_range(None, end, "120min", zone, NOW_S)[0] == whole
    assert time_range(None, None, None, zone, NOW_S)[0] == Range(1_794_913_601, 1_795_000_001)


@pytest.mark.parametrize(
    ("begin", "end", "last", "message"),
    [
        ("2026-11-23", "2026-11-24", "1h", "two of them at most"),
        ("2026-11-23", "2026-11-23", None, "the range is empty"),
        ("2026-11-24", "2026-11-23", None, "the range is empty"),
        ("1980-01-01", "2026-11-23", None, "longer than ten years"),
        (None, None, "1y", "is no duration"),
        (None, None, "0h", "is no duration"),
        (None, None, "999999w", "is no duration"),
    ],
)
def test_ranges_that_are_refused(
    begin: str | None, end: str | None, last: str | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        time_range(begin, end, last, BERLIN, NOW_S)


def test_durations() -> None:
    assert [duration_s(text) for text in ("5m", "90min", "24h", "7d", "2 w")] == [
        *(300, 5400, 86_400, 604_800, 1_209_600)
    ]
