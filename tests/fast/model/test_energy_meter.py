# SPDX-License-Identifier: Apache-2.0
"""An external meter beside a recording: its program or file, and its joules in the trace."""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import fake_tracer as ft
from qjoule.engine.attribute import attribute
from qjoule.errors import QjouleError, UsageError
from qjoule.model.energy import Cause
from qjoule.model.result import Attribution, Domain
from qjoule.reporters.json_report import to_json
from qjoule.session.meter import Meter, start_meter
from qjoule.stream.blocks import Stream
from qjoule.stream.recording import record
from qjoule.trace.meta import MeterInfo
from qjoule.trace.reader import Trace
from qjoule.trace.schema import METER
from qjoule.trace.writer import TraceWriter

S = 1_000_000_000
WATTS = 80
EPOCH_NS = 1_700_000_000 * S  #: when the trace begins


@pytest.fixture(autouse=True)
def as_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


def until(there: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not there():
        assert time.monotonic() < end
        time.sleep(0.01)


def program(tmp_path: Path, body: str) -> str:
    """A command line that runs this Python."""
    script = tmp_path / "a meter.py"
    script.write_text(f"import sys, time\n{body}\n")
    return f"'{sys.executable}' '{script}'"


def started(command: str | None = None, file: Path | None = None) -> Meter:
    meter = start_meter(command, file)
    assert meter is not None
    return meter


def test_a_program_is_read_line_by_line_until_it_ends(tmp_path: Path) -> None:
    body = """
for second in range(5):
    print(1700000000 + second, '80 W', flush=True)
print('no idea', flush=True)
sys.stdout.write('1700000005 80 W')
sys.exit(3)
"""
    meter = started(program(tmp_path, body))
    until(lambda: meter.ended)
    table = meter.take()
    meter.close()
    assert table.schema.equals(METER)
    assert table.column("raw").to_pylist() == [n * 80 * S for n in range(6)]
    assert table.column("stamp_ns").to_pylist() == [EPOCH_NS + n * S for n in range(6)]
    assert meter.take().num_rows == 0
    assert meter.bad == 1
    assert meter.info == MeterInfo(Path(sys.executable).name, "power", 1e-9)
    assert meter.summary.endswith(
        "6 readings, 1 lines that are none, and ended before the recording"
    )


def test_a_program_that_goes_on_ends_with_us(tmp_path: Path) -> None:
    body = (
        "import os\nprint(os.getpid(), '1 W', flush=True)\nwhile True: print('- 5 W', flush=True)"
    )
    meter = started(program(tmp_path, body))
    until(lambda: meter.bad > 0)
    process = meter._program
    assert process is not None
    meter.close()
    assert process.wait(20) != 0


def test_an_endless_line_takes_no_memory(tmp_path: Path) -> None:
    body = "sys.stdout.write('x' * 50_000_000)\nprint()\nprint('5 60 W')"
    meter = started(program(tmp_path, body))
    until(lambda: meter.ended)
    meter.close()
    assert (meter.count, meter.bad) == (1, 1)


def test_a_file_is_read_from_its_end_on(tmp_path: Path) -> None:
    file = tmp_path / "meter.log"
    file.write_text("time,joules\n1,5\n")
    meter = started(file=file)
    with file.open("a") as log:
        for line in ("2 6 J", "3 7 J"):
            log.write(line + "\n")
            log.flush()
        until(lambda: meter.count == 2)
    assert not meter.ended
    meter.close()
    assert meter.info == MeterInfo("meter.log", "counter", 1e-6)
    assert meter.take().column("raw").to_pylist() == [6_000_000, 7_000_000]


def test_what_cannot_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert start_meter(None, None) is None
    with pytest.raises(UsageError, match="give one of them"):
        start_meter("true", tmp_path)
    with pytest.raises(UsageError, match="No closing quotation"):
        start_meter("a 'b", None)
    with pytest.raises(UsageError, match="name a program"):
        start_meter(" ", None)
    with pytest.raises(QjouleError, match="there is no program no-such-meter"):
        start_meter("no-such-meter -v", None)
    with pytest.raises(QjouleError, match="No such file"):
        start_meter(None, tmp_path / "none")
    with pytest.raises(QjouleError, match="neither a file"):
        start_meter(None, tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(QjouleError, match="as root"):
        start_meter("true", None)


class Told:
    """A meter with known readings, which arrive 30 ms late; its clock is right."""

    def __init__(self, seconds: float, *, first: float = -2, watts: int = WATTS) -> None:
        count = int(seconds - first) + 1
        self._rows = [
            (ft.BEGIN_NS + int((first + n) * S), (n * watts * S)) for n in range(max(count, 0))
        ]
        self.bad = 0

    @property
    def info(self) -> MeterInfo | None:
        return MeterInfo("plug", "power", 1e-9)

    def take(self) -> pa.Table:
        rows, self._rows = self._rows, []
        columns = {
            "t_ns": [t_ns + 30_000_000 for t_ns, _ in rows],
            "stamp_ns": [t_ns - ft.BEGIN_NS + EPOCH_NS for t_ns, _ in rows],
            "raw": [raw for _, raw in rows],
        }
        return pa.table(columns, METER)


def trace(path: Path, meter: Told, seconds: float = 8, **hello: object) -> Trace:
    """A busy server for some seconds, and the meter."""
    pieces = ft.traffic(seconds, per_second=200)
    stream = b"".join(pieces)
    if hello:
        head = ft.head(2, **hello)
        stream = head + stream[len(ft.head(2)) :]
    record(Stream(io.BytesIO(stream)), TraceWriter(path), ft.fingerprint, meter=meter)
    return Trace(path)


def domain(found: Attribution, name: str) -> Domain:
    return next(one for one in found.domains if one.name == name)


def test_the_wall_is_a_ledger_of_its_own_beside_packages(tmp_path: Path) -> None:
    found = attribute(trace(tmp_path / "t", Told(9)))
    wall = domain(found, "wall")
    assert found.main.name == "package"
    # Readings always arrive 30 ms late, which cannot be distinguished from an offset of the clock.
    # So of 8 s, those between the first and the last reading in time are known.
    assert wall.measured_nj == 7 * WATTS * S == sum(wall.parts_nj.values())
    assert all(row.energy_by_domain_nj["wall"] > 0 for row in found.rows)
    alone = attribute(trace(tmp_path / "alone", Told(-3)))
    assert found.main == alone.main
    assert [row.energy_nj for row in found.rows] == [row.energy_nj for row in alone.rows]
    (note,) = (note for note in found.model.notes if "wall" in note)
    assert note.startswith(
        "wall meter: its clock is -0.030 s from this machine's and drifts +0.0 ppm"
    )


def test_what_is_shown_says_the_same_each_time(tmp_path: Path) -> None:
    path = trace(tmp_path / "t", Told(9)).path
    first, again = (to_json(attribute(Trace(path))) for _ in range(2))
    assert first == again
    assert '"wall"' in first


def test_without_counters_the_wall_is_all_there_is(tmp_path: Path) -> None:
    found = trace(tmp_path / "t", Told(9), energy_source=b"none", grade=0)
    assert (found.meta.energy.source, found.meta.energy.grade) == ("meter", "measured")
    assert found.meta.meter == MeterInfo("plug", "power", 1e-9)


def test_a_meter_that_stops_is_told(tmp_path: Path) -> None:
    found = attribute(trace(tmp_path / "t", Told(3), seconds=12))
    wall = domain(found, "wall")
    assert wall.measured_nj == 3 * WATTS * S
    assert found.unattributed_windows == 0
    assert found.window_causes[f"wall {Cause.STOPPED.name.lower()}"] == 1


@pytest.mark.parametrize("first", [0.4, 0.9])
def test_a_meter_slower_than_the_recording_knows_nothing(tmp_path: Path, first: float) -> None:
    found = attribute(trace(tmp_path / "t", Told(1, first=first), seconds=1))
    assert domain(found, "wall").measured_nj == 0
    assert found.window_causes["wall edge"] > 0


def test_a_meter_that_says_nothing_leaves_the_trace_as_it_is(tmp_path: Path) -> None:
    found = trace(tmp_path / "t", Told(-3))
    assert [domain.name for domain in attribute(found).domains] == ["package", "dram"]


def test_lines_that_are_no_readings_are_loss(tmp_path: Path) -> None:
    meter = Told(9)
    meter.bad = 7
    assert trace(tmp_path / "t", meter).loss["meter"] == 7
