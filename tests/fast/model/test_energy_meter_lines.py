# SPDX-License-Identifier: Apache-2.0
"""Lines of an external meter: every form of time and unit, and invalid readings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qjoule.session.meter_lines import MeterLines, Reading

S = 1_000_000_000
CAME = 77 * S


def read(*lines: str | bytes) -> tuple[list[Reading], MeterLines]:
    """Parses lines that came a second apart."""
    taken = MeterLines()
    found = []
    for second, line in enumerate(lines):
        raw = line if isinstance(line, bytes) else line.encode()
        reading = taken.read(raw, CAME + second * S)
        found += [] if reading is None else [reading]
    return found, taken


def drawn_j(*lines: str) -> float:
    found, taken = read(*lines)
    assert not taken.rubbish
    return (found[-1].raw - found[0].raw) * (1e-9 if taken.is_power else 1e-6)


@pytest.mark.parametrize(
    ("time", "stamp_ns"),
    [
        ("1699999999.123", 1699999999_123_000_000),
        ("1699999999", 1699999999 * S),
        ("1699999999123", 1699999999_123_000_000),
        ("1699999999123456", 1699999999_123_456_000),
        ("1699999999123456789", 1699999999_123_456_789),
        ("2023-11-14T22:13:19.123Z", 1699999999_123_000_000),
        ("2023-11-14T23:13:19.123+01:00", 1699999999_123_000_000),
        ("2023-11-14T22:13:19.123", 1699999999_123_000_000),
        ("12.5", 12 * S + S // 2),
        ("0", 0),
        ("-", None),
    ],
)
def test_times(time: str, stamp_ns: int | None) -> None:
    (reading,), _ = read(f"{time} 57.3 W")
    assert (reading.stamp_ns, reading.t_ns) == (stamp_ns, CAME)


@pytest.mark.parametrize(
    "form", ["{} 57.3 W", "{} W 57.3", "{} 57.3W", "{},57.3,W", "{};57.3 ;W", "{}\t57300\tmW"]
)
def test_powers_count_since_the_line_before(form: str) -> None:
    assert drawn_j(*(form.format(time) for time in (10, 11, 13.5))) == pytest.approx(57.3 * 3.5)


@pytest.mark.parametrize(
    ("first", "last", "joules"),
    [
        ("5 J", "90 J", 85),
        ("1.5 kJ", "2 kJ", 500),
        ("0.001 kWh", "0.002 kWh", 3600),
        ("1Wh", "2Wh", 3600),
    ],
)
def test_energies_are_counters(first: str, last: str, joules: float) -> None:
    assert drawn_j(f"1 {first}", f"2 {last}") == pytest.approx(joules)


@pytest.mark.parametrize(
    ("header", "line"),
    [
        ("# unit: W", "{} 40"),
        ("time,watts", "{},40"),
        ("time;volts;power_w;amps", "{};230.1;40;0.2"),
        ("# time volts W", "{} 230.1 40"),
    ],
)
def test_a_header_says_unit_and_column(header: str, line: str) -> None:
    assert drawn_j(header, line.format(1), line.format(2)) == pytest.approx(40)


def test_the_first_power_counts_for_nothing() -> None:
    found, _ = read("5 1000 W", "6 10 W")
    assert [one.raw for one in found] == [0, 10 * S]


@pytest.mark.parametrize(
    "line",
    [
        *("57.3 W", "12", "12 W", "12 57.3", "noon 57.3 W", "12 57.3 V", "12 57.3 W/h", "12 -5 W"),
        *("12 nan W", "12 inf W", "12 1e5 W", "12 2 MW", "12 1000001 W", "12 5 J", "-4 5 W"),
        *(
            "9" * 30 + " 5 W",
            "2023-13-41T00:00 5 W",
            "12 " + "5" * 300 + " W",
            "12 5 W " + "x" * 300,
        ),
    ],
)
def test_rubbish_is_counted_and_left_out(line: str) -> None:
    found, taken = read("10 50 W", line, "11 50 W")
    assert taken.rubbish == 1
    assert [one.raw for one in found] == [0, 50 * S]


def test_times_that_go_back_or_stand_are_rubbish() -> None:
    found, taken = read("10 50 W", "9 50 W", "10 50 W", "11 50 W")
    assert (len(found), taken.rubbish) == (2, 2)


def test_a_clock_is_there_always_or_never() -> None:
    found, taken = read("10 50 W", "- 50 W", "11 50 W")
    assert (len(found), taken.rubbish) == (2, 1)


def test_after_a_gap_the_counter_starts_again() -> None:
    found, _ = read(*(f"{second} 50 W" for second in (1, 2, 3, 4, 60, 61)))
    assert [one.raw // S for one in found] == [0, 50, 100, 150, 0, 50]


def test_empty_lines_and_remarks_are_nothing() -> None:
    found, taken = read("", "  ", "# made by a meter", "10 50 W", "#", "11 50 W\r")
    assert (len(found), taken.rubbish) == (2, 0)


@given(st.lists(st.binary(max_size=300) | st.text(" -.:;,#0159WJkhTZ", max_size=40), max_size=30))
def test_nothing_that_is_printed_can_fail(lines: list[bytes | str]) -> None:
    found, _ = read(*lines)
    times = [one.t_ns if one.stamp_ns is None else one.stamp_ns for one in found]
    assert times == sorted(set(times))
    assert all(0 <= one.raw < 2**63 for one in found)
