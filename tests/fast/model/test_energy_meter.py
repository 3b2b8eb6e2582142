# SPDX-License-Identifier: Apache-2.0
"""An external meter beside a recording: its lines, its clock, its program and its joules."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fake_tracer as ft
from qjoule.engine.attribute import attribute
from qjoule.errors import QjouleError
from qjoule.model.clock import fit_clock, to_ours
from qjoule.model.result import Attribution
from qjoule.session.meter import Meter, start_meter
from qjoule.session.meter_lines import MeterLines, Reading
from qjoule.stream.blocks import Stream
from qjoule.stream.record import record
from qjoule.trace.meta import MeterInfo
from qjoule.trace.reader import Trace
from qjoule.trace.writer import TraceWriter
from waiting import until

MS, S = 1_000_000, 1_000_000_000
WATTS = 80
EPOCH_NS = 1_700_000_000 * S  #: when the trace begins


@pytest.fixture(autouse=True)
def as_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


def read(*lines: str | bytes) -> tuple[list[Reading], MeterLines]:
    """Parses lines that came a second apart."""
    parser = MeterLines()
    raws = [line if isinstance(line, bytes) else line.encode() for line in lines]
    readings = [parser.read(raw, (77 + second) * S) for second, raw in enumerate(raws)]
    return [reading for reading in readings if reading is not None], parser


@pytest.mark.parametrize(
    ("lines", "joules"),
    [
        *(
            ([form.format(time) for time in (10, 11, 13.5)], 57.3 * 3.5)
            for form in ("{} 57.3 W", "{} W 57.3", "{} 57.3W", "{};57.3 ;W")
        ),
        (["10\t57300\tmW", "", "# made by a meter", "#", "11\t57300\tmW\r"], 57.3),
        (["1 1.5 kJ", "2 2 kJ"], 500),
        (["1699999999123 40 W", "1700000000.123 40 W"], 40),
        (["2023-11-14T22:13:19+01:00 40 W", "2023-11-14T21:13:20Z 40 W"], 40),
        (["- 40 W", "- 40 W"], 40),  # times of arrival
        (["1 0.001 kWh", "2 0.002 kWh"], 3600),
        (["# unit: W", "1 40", "2 40"], 40),
        (["time;volts;power_w;amps", "1;230.1;40;0.2", "2;230.1;40;0.2"], 40),
    ],
)
def test_joules_between_the_first_line_and_the_last(lines: list[str], joules: float) -> None:
    readings, parser = read(*lines)
    assert not parser.rubbish
    counts = readings[-1].raw - readings[0].raw
    assert counts * (1e-9 if parser.is_power else 1e-6) == pytest.approx(joules)


@pytest.mark.parametrize(
    "line",
    [
        *("57.3 W", "12 57.3", "noon 57.3 W", "12 57.3 V", "12 -5 W", "12 nan W", "12 1000001 W"),
        *("12 5 J", "9" * 30 + " 5 W", "10.5 5 W " + "x" * 300, "9 50 W", "- 50 W"),
    ],
)
def test_an_invalid_line_is_counted_and_left_out(line: str) -> None:
    readings, parser = read("10 50 W", line, "11 50 W")
    assert parser.rubbish == 1
    assert [reading.raw for reading in readings] == [0, 50 * S]


@given(st.lists(st.binary(max_size=300) | st.text(" -.:;,#0159WJkhTZ", max_size=40), max_size=30))
def test_hostile_lines_give_ordered_readings_in_range(lines: list[bytes | str]) -> None:
    readings, _ = read(*lines)
    times = [reading.t_ns if reading.stamp_ns is None else reading.stamp_ns for reading in readings]
    assert times == sorted(set(times))
    assert all(0 <= reading.raw < 2**63 for reading in readings)


def arrivals(drift: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(stamps, arrival times, true times by our clock): one a second for ten minutes, with
    exponential delays of 40 ms and a few of 3 s.
    """
    random, count = np.random.default_rng(3), 600
    true = 1000 * S + np.arange(count) * S + random.integers(0, 50 * MS, count)
    stamp = EPOCH_NS + np.rint((true - true[0]) * (1 - drift)).astype(np.int64) + 123_456_789
    delay = random.exponential(40 * MS, count)
    delay[random.integers(0, count, 5)] += 3 * S
    return stamp, true + delay.astype(np.int64), true


@pytest.mark.parametrize("drift", [50e-6, -200e-6])
def test_offset_and_drift_are_found_beneath_the_delays(drift: float) -> None:
    stamp, t_ns, true = arrivals(drift)
    stamp[[50, 300]] += 20 * S  # two wrong ones
    fit = fit_clock(stamp, t_ns)
    assert fit.followed
    assert fit.drift == pytest.approx(drift, abs=10e-6)
    ours = to_ours(fit, stamp, t_ns)
    assert (ours <= t_ns).all(), "no stamp is later than its arrival"
    assert np.abs(np.delete(ours - true, [50, 300])).max() < 8 * MS
    assert 60 * MS < fit.delay_ns < 300 * MS


def started(tmp_path: Path, body: str) -> Meter:
    """A meter whose program runs this Python."""
    script = tmp_path / "a meter.py"
    script.write_text(f"import sys\n{body}\n")
    meter = start_meter(f"'{sys.executable}' '{script}'", None)
    assert meter is not None
    return meter


def test_a_program_is_read_line_by_line_until_it_ends(tmp_path: Path) -> None:
    body = """
for second in range(5):
    print(1700000000 + second, '80 W', flush=True)
sys.stdout.write('x' * 50_000_000)
print()
sys.stdout.write('1700000005 80 W')
sys.exit(3)
"""
    meter = started(tmp_path, body)
    until(lambda: meter.ended)
    readings = meter.readings()
    meter.close()
    assert [reading.raw for reading in readings] == [n * WATTS * S for n in range(6)]
    assert [reading.stamp_ns for reading in readings] == [EPOCH_NS + n * S for n in range(6)]
    assert not meter.readings()
    assert meter.info == MeterInfo(Path(sys.executable).name, "power", 1e-9)
    end = "6 readings, 1 lines that are none, and ended before the recording"
    assert meter.summary.endswith(end)


def test_a_file_is_read_from_its_end_on(tmp_path: Path) -> None:
    file = tmp_path / "meter.log"
    file.write_text("time,joules\n1,5\n")
    meter = start_meter(None, file)
    assert meter is not None
    with file.open("a") as log:
        log.write("2 6 J\n3 7 J\n")
    until(lambda: meter.count == 2)
    assert not meter.ended
    meter.close()
    assert meter.info == MeterInfo("meter.log", "counter", 1e-6)
    assert [reading.raw for reading in meter.readings()] == [6_000_000, 7_000_000]


@pytest.mark.parametrize(
    ("command", "file", "message"),
    [
        ("true", ".", "give one of them"),
        ("no-such-meter -v", None, "there is no program no-such-meter"),
        (None, "none", "No such file"),
    ],
)
def test_what_cannot_be_read_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str | None,
    file: str | None,
    message: str,
) -> None:
    with pytest.raises(QjouleError, match=message):
        start_meter(command, tmp_path / file if file else None)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(QjouleError, match="as root"):
        start_meter("true", None)


class FakeMeter:
    """A reading of `WATTS` each second from -2 to `last`, which arrives 30 ms late."""

    info = MeterInfo("plug", "power", 1e-9)

    def __init__(self, last: int, bad: int = 0) -> None:
        self.bad = bad
        self._seconds = list(range(-2, last + 1))

    def readings(self) -> list[Reading]:
        seconds, self._seconds = self._seconds, []
        return [
            Reading(ft.BEGIN_NS + s * S + 30 * MS, EPOCH_NS + s * S, n * WATTS * S)
            for n, s in enumerate(seconds)
        ]


def trace(path: Path, meter: FakeMeter, seconds: float = 8, **hello: object) -> Trace:
    """A busy server for some seconds, and the meter."""
    stream = b"".join(ft.traffic(seconds, per_second=200))
    if hello:
        stream = ft.head(2, **hello) + stream[len(ft.head(2)) :]
    record(Stream(io.BytesIO(stream)), TraceWriter(path), ft.context(meter=meter))
    return Trace(path)


def wall_nj(attribution: Attribution) -> int:
    (wall,) = (domain for domain in attribution.domains if domain.name == "wall")
    assert sum(wall.parts_nj.values()) == wall.measured_nj
    return wall.measured_nj


def test_the_wall_is_a_ledger_of_its_own_beside_packages(tmp_path: Path) -> None:
    beside = attribute(trace(tmp_path / "t", FakeMeter(9)))
    assert beside.main.name == "package"
    # A constant delay looks like an offset of the clock: of 8 s, 7 are between readings in time.
    assert wall_nj(beside) == 7 * WATTS * S
    assert all(row.energy_by_domain_nj["wall"] > 0 for row in beside.rows)
    alone = attribute(trace(tmp_path / "alone", FakeMeter(-3)))
    assert beside.main == alone.main
    assert [row.energy_nj for row in beside.rows] == [row.energy_nj for row in alone.rows]
    (note,) = (note for note in beside.model.notes if "wall" in note)
    start = "wall meter: its clock is -0.030 s from this machine's and drifts +0.0 ppm"
    assert note.startswith(start)


def test_without_counters_the_meter_is_the_source_and_its_invalid_lines_are_loss(
    tmp_path: Path,
) -> None:
    metered = trace(tmp_path / "t", FakeMeter(9, bad=7), energy_source=b"none", grade=0)
    assert (metered.meta.energy.source, metered.meta.energy.grade) == ("meter", "measured")
    assert metered.meta.meter == FakeMeter.info
    assert metered.loss["meter"] == 7


def test_a_meter_that_stops_has_windows_without_energy(tmp_path: Path) -> None:
    stopped = attribute(trace(tmp_path / "stopped", FakeMeter(3), seconds=12))
    assert wall_nj(stopped) == 3 * WATTS * S
    assert (stopped.unattributed_windows, stopped.window_causes["wall stopped"]) == (0, 1)
