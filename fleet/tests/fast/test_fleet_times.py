# SPDX-License-Identifier: Apache-2.0
"""Time ranges of questions: zones, changes of clocks, leap seconds, and what is refused.

An hour's rows are the sums of its minutes' rows: amounts to the nJ, errors by their rules.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import zip_longest
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qjoule.agent.hourly_tables import AMOUNTS, ERRORS, KEYS, ROWS, of_hour
from qjoule.errors import UsageError
from qjoule_fleet.times import Range, Zone, duration_s, iso, moment, time_range

BERLIN = Zone("Europe/Berlin")
NOW_S = 1_795_000_000.5


def at(text: str, zone: Zone = BERLIN, *, end: bool = False) -> tuple[str, list[str]]:
    notes: list[str] = []
    return iso(moment(text, zone, end=end, notes=notes)), notes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-23T19:00", "2026-11-23T18:00:00Z"),
        ("2026-07-23T19:00", "2026-07-23T17:00:00Z"),
        ("2026-11-23", "2026-11-22T23:00:00Z"),
        ("2026-11-23T19:00Z", "2026-11-23T19:00:00Z"),
        ("20261123T190000+0530", "2026-11-23T13:30:00Z"),
    ],
)
def test_times_are_read_in_their_zone(text: str, expected: str) -> None:
    assert at(text) == (expected, [])


def test_a_time_that_clocks_leave_out_is_the_moment_of_the_change() -> None:
    for end in (False, True):
        shown, notes = at("2026-03-29T02:30", end=end)
        assert shown == "2026-03-29T01:00:00Z"
        assert notes == [
            "2026-03-29T02:30 does not exist in Europe/Berlin: clocks are set forward at "
            "2026-03-29T01:00:00Z, which is taken"
        ]
    assert at("2018-11-04", Zone("America/Sao_Paulo"))[0] == "2018-11-04T03:00:00Z"


def test_of_a_time_that_occurs_twice_a_range_has_both() -> None:
    first, notes = at("2026-10-25T02:30")
    second, _ = at("2026-10-25T02:30", end=True)
    assert (first, second) == ("2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z")
    assert "occurs twice in Europe/Berlin: the first" in notes[0]
    for day, after, hours in (("03-29", "03-30", 23), ("10-25", "10-26", 25)):
        local_day, _ = time_range(f"2026-{day}", f"2026-{after}", None, BERLIN, NOW_S)
        assert local_day.seconds == hours * 3600


def test_other_times_zones_and_durations_are_refused() -> None:
    for text in ("", "yesterday", "2026-13-01", "25:00", "2026-11-23T24:61", "9999999999", "\x1b["):
        with pytest.raises(UsageError, match="is no time"):
            at(text)
    for name in ("Mars/Olympus", "../../etc/passwd", "/etc/passwd"):
        with pytest.raises(UsageError, match="there is no time zone"):
            Zone(name)
    for last in ("1y", "0h", "999999w"):
        with pytest.raises(UsageError, match="is no duration"):
            duration_s(last)
    assert [duration_s(text) for text in ("5m", "90min", "24h", "2 w")] == [
        *(300, 5400, 86_400, 1_209_600)
    ]


@pytest.mark.parametrize(
    ("begin", "end", "last", "message"),
    [
        ("2026-11-23T10:00", "2026-11-23T12:00", None, ""),
        ("2026-11-23T10:00", None, "2h", ""),
        (None, "2026-11-23T12:00", "120min", ""),
        ("2026-11-23", "2026-11-24", "1h", "two of them at most"),
        ("2026-11-23", "2026-11-23", None, "the range is empty"),
        ("1980-01-01", "2026-11-23", None, "longer than ten years"),
    ],
)
def test_a_range_has_two_of_beginning_end_and_duration(
    begin: str | None, end: str | None, last: str | None, message: str
) -> None:
    if not message:
        answer, _ = time_range(begin, end, last, Zone("UTC"), NOW_S)
        assert answer == Range(1_795_428_000, 1_795_435_200)
        return
    with pytest.raises(UsageError, match=message):
        time_range(begin, end, last, Zone("UTC"), NOW_S)


HOUR_S = 1_795_000_000 // 3600 * 3600
CLASS = {"grade": "measured", "policy": "separate", "host_id": "a"}

TEXTS = st.sampled_from([None, "", "a"])
ROW = st.fixed_dictionaries(
    {
        "minute": st.integers(0, 59).map(lambda number: (HOUR_S + 60 * number) * 1000),
        "seconds": st.integers(0, 60).map(float),
        **dict.fromkeys(KEYS[2:], st.none()),
        **dict.fromkeys(("grade", *KEYS[:2]), TEXTS),
        **dict.fromkeys(AMOUNTS, st.none() | st.integers(0, 1 << 55)),
        **dict.fromkeys(ERRORS, st.none() | st.floats(0, 2.0**59, width=32, allow_subnormal=False)),
        "latency": st.none() | st.lists(st.integers(0, 1 << 50), max_size=4),
    }
)
MINUTES = st.lists(ROW, max_size=6)


@given(MINUTES)
def test_an_hour_is_the_sum_of_its_minutes(minutes: list[dict[str, Any]]) -> None:
    hour = of_hour(pa.Table.from_pylist(minutes, ROWS), HOUR_S)
    assert hour.schema.equals(ROWS)
    series: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in minutes:
        series[tuple(row[name] for name in KEYS)].append(row)
    sums = {tuple(row[name] for name in KEYS): row for row in hour.to_pylist()}
    assert sums.keys() == series.keys() and len(hour) == len(series)
    for key, rows in series.items():
        total = sums[key]
        assert total["minute"].timestamp() == HOUR_S
        for name in AMOUNTS:
            recorded = [row[name] for row in rows if row[name] is not None]
            assert total[name] == (sum(recorded) if recorded else None)
        for name in ERRORS:
            values = [row[name] for row in rows]
            if None in values:
                assert total[name] is None
            else:
                assert sum(values) * (1 - 1e-12) <= total[name] <= sum(values) * 1.008
        lists = [row["latency"] for row in rows if row["latency"] is not None]
        added = [sum(bucket) for bucket in zip_longest(*lists, fillvalue=0)]
        assert total["latency"] == (added if lists else None)


@given(MINUTES.filter(bool))
def test_an_hours_time_is_that_of_all_its_minutes(minutes: list[dict[str, Any]]) -> None:
    """A series that did nothing in some minutes was traced in them all the same."""
    each = {row["minute"]: row | CLASS for row in minutes}
    node = {"kind": "node", "name": "package"} | dict.fromkeys(("server", "database"))
    nodes = [row | node | {"fingerprint": None} for row in each.values()]
    others = [row | {"kind": "queries"} for row in each.values() if row["minute"] % 120_000]
    hour = of_hour(pa.Table.from_pylist(nodes + others, ROWS), HOUR_S)
    assert set(hour["seconds"].to_pylist()) == {sum(row["seconds"] for row in nodes)}
