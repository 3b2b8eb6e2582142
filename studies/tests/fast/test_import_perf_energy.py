# SPDX-License-Identifier: Apache-2.0
"""Energy of an import (`perf stat`'s intervals, the tracer's power curve), and perf events."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from click.testing import CliRunner

from energy_probe.probe import ONE_PACKAGE, Probe
from perf_text import BEGIN_NS, CLIENT, PerfText
from qjoule.commands.record import command
from qjoule.contract import MORE_COUNTERS, Grade
from qjoule.engine.tables import readings as energy_readings
from qjoule.errors import QjouleError, UsageError
from qjoule.machine.perf_events import PerfEvent, more_counters, parse_event, parse_events
from qjoule.model.energy import Cause
from qjoule.model.reading_windows import window_energy
from qjoule.trace.reader import Trace
from qjoule_studies.import_perf.build import Request, import_perf
from qjoule_studies.import_perf.energy import EstimatedCounters, counted_by, parse_curve

MS = 1_000_000
#: As perf 6.1 prints them with `-a --per-socket -I 20 -x,`.
CSV = """# started on Sun Nov 22 18:35:22 2026

     0.020084191,S0,1,1.25,Joules,power/energy-pkg/,20084191,100.00,,
     0.020084191,S0,1,0.10,Joules,power/energy-ram/,20084191,100.00,,
     0.040445385,S0,1,2.00,Joules,power/energy-pkg/,20361194,100.00,,
     0.040445385,S0,1,0.11,Joules,power/energy-ram/,20361194,100.00,,
"""


def _written(directory: Path, text: str) -> Path:
    path = directory / "energy.csv"
    path.write_text(text)
    return path


def test_intervals_add_up_to_a_counter_of_what_was_printed(tmp_path: Path) -> None:
    """Other events of the same `perf stat` are left out."""
    other = "     0.0205,S0,2,205.53,msec,cpu-clock,205530515,100.00,2.055,CPUs utilized\n"
    counted = counted_by(_written(tmp_path, CSV + other), 7_000)
    assert [(domain.package, domain.name, domain.unit_j) for domain in counted.domains] == [
        (0, "dram", 0.01),
        (0, "package", 0.01),
    ]
    readings = [reading for reading in counted.readings() if reading.domain == 1]
    assert [reading.t_ns for reading in readings] == [7_000, 20_091_191, 40_452_385]
    assert [reading.raw - readings[0].raw for reading in readings] == [0, 125, 325]
    assert counted.source[1] is Grade.MEASURED
    text = "     0.020084191,1.5,Joules,power/energy-pkg/,20084191,100.00,,\n"
    one_package = counted_by(_written(tmp_path, text), 0)
    assert [(domain.package, domain.unit_j) for domain in one_package.domains] == [(0, 0.1)]


@pytest.mark.parametrize("unknown", ["<not counted>", "<not supported>"])
def test_an_interval_that_was_not_counted_is_unknown(unknown: str, tmp_path: Path) -> None:
    """The next interval is unknown, too: since when it counts is not recorded."""
    line = "0.0{}0000000,S0,1,{},{},power/energy-pkg/,0,0.00,,\n"
    values = ["1.00", "1.00", unknown, "1.00", "1.00", unknown, "1.00", "1.00", "1.00"]
    text = "".join(
        line.format(number, value, "" if value == unknown else "Joules")
        for number, value in enumerate(values, 1)
    )
    path = _written(tmp_path, text)
    recorded = PerfText()
    recorded.switch(0, 0, CLIENT)
    recorded.switch(1 * MS, 0, CLIENT, cpu=1)
    recorded.switch(100 * MS, CLIENT, 0)
    recording = recorded.write(tmp_path)
    start = f"{BEGIN_NS // 10**9}.000000000"
    done = import_perf(Request(recording, str(path), start), tmp_path / "t")
    assert done.meta.loss["energy"] == 2
    trace = Trace(tmp_path / "t")
    energy = window_energy(*energy_readings(trace.table("energy")))
    is_known = [Cause(int(cause)) is Cause.NONE for cause in energy.cause[0]]
    assert is_known == [True, True, False, False, True, False, False, True, True]
    assert energy.energy_nj[0][energy.cause[0] == Cause.NONE].sum() == 5 * 10**9


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0.020084191,S0,1,1.00,Joules,power/energy-pkg/,0,,", "line 7: its time is not after"),
        ("0.060000000,S0,1,-1.00,Joules,power/energy-pkg/,0,,", "'-1.00' is no number of joules"),
        ("0.060000000,C0,1,1.00,Joules,power/energy-pkg/,0,,", "this is not 'perf stat -I"),
        ("x" * 9000, "the line has no end"),
    ],
)
def test_a_wrong_line_is_named(line: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(QjouleError, match=message):
        counted_by(_written(tmp_path, CSV + line + "\n"), 0)
    never = "     0.100000000,S0,1,<not counted>,Joules,power/energy-pkg/,0,0.00,,\n"
    with pytest.raises(QjouleError, match="has no joules"):
        counted_by(_written(tmp_path, never), 0)


def test_perf_stat_within_perf_record_tells_when_it_began(tmp_path: Path) -> None:
    recorded = PerfText()
    for pid, parent, comm in ((700, 1, b"perf"), (701, 700, b"perf-exec")):
        recorded.side(b"PERF_RECORD_FORK(%d:%d):(%d:%d)" % (pid, pid, parent, parent))
        recorded.side(b"PERF_RECORD_COMM: %s:%d/%d" % (comm, pid, pid))
    recorded.switch(-1 * MS, 0, 701)
    recorded.side(b"PERF_RECORD_COMM exec: perf:701/701", 0, tid=701)
    recorded.side(b"PERF_RECORD_FORK(702:702):(701:701)", 1 * MS, tid=701)
    recorded.switch(2 * MS, 701, 702)
    recorded.side(b"PERF_RECORD_COMM exec: sleep:702/702", 3 * MS, tid=702)
    recorded.switch(4 * MS, 702, CLIENT)
    recorded.switch(5 * MS, 0, CLIENT, cpu=1)
    recorded.switch(45 * MS, CLIENT, 0)
    csv = _written(tmp_path, CSV)
    done = import_perf(Request(recorded.write(tmp_path), str(csv)), tmp_path / "t")
    assert (done.meta.energy.source, done.meta.energy.grade) == ("perf stat", "measured")
    trace = Trace(tmp_path / "t")
    assert trace.pandas("energy")["t_ns"].min() == BEGIN_NS + 3 * MS
    kinds = trace.pandas("owners").set_index("tgid")["kind"]
    assert kinds[701] == "tracer" and kinds[702] == "process"


@pytest.mark.needs("gcc")
def test_the_curve_is_the_tracers() -> None:
    """The same busy times, read at the same times, by the C source and by ours."""
    curve = (10.0, 30.5, 60.0, 80.25, 4.5)
    spec = ",".join(map(str, curve))
    with Probe(f"estimated:{spec}", ONE_PACKAGE) as probe:
        first = probe.read()
        ours = EstimatedCounters(parse_curve(spec), {0: 2}, first[0].t_ns)
        busy_ns = 0
        for share in (0.0, 0.02, 0.1, 0.3, 0.5, 0.7, 1.0, 3.0, 0.05):
            busy_ns += int(share * 2 * 300_000)
            probe.tell(f"busy {busy_ns}")
            theirs = probe.read()
            read = list(ours.read(theirs[0].t_ns, {0: busy_ns}, {0: 0}))
            assert [reading.raw for reading in read] == [
                pytest.approx(reading.raw, abs=2) for reading in theirs
            ]


@pytest.mark.parametrize(
    ("text", "event"),
    [
        ("branch-instructions", PerfEvent("branches", 0, 4)),
        ("stalled-cycles-backend", PerfEvent("stalled-cycles-backend", 0, 8)),
        ("L1-dcache-load-misses", PerfEvent("L1-dcache-load-misses", 3, 0x10000)),
        ("r01c2", PerfEvent("r01c2", 4, 0x1C2)),
        ("L2-misses=r3f24", PerfEvent("L2-misses", 4, 0x3F24)),
        ("instructions:u", PerfEvent("instructions:u", 0, 1, 4)),
        ("cpu-cycles:k", PerfEvent("cycles:k", 0, 0, 8)),
    ],
)
def test_names(text: str, event: PerfEvent) -> None:
    assert parse_event(text) == event


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("branch-mises", "no event 'branch-mises'; did you mean branch-misses"),
        ("cycles=r1", "cycles is always counted; give it another name"),
        ("branch-misses,,r1", "give events with commas between them"),
        (",".join(f"r{i}" for i in range(MORE_COUNTERS + 1)), "13 events, at most 12 can be read"),
    ],
)
def test_what_is_no_event_is_a_usage_error_that_helps(text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        CliRunner().invoke(command, ["--counters", text], catch_exceptions=False)
    assert message in str(error.value)


def test_events_become_the_tracers_options_except_what_is_counted_anyway() -> None:
    events = parse_events(
        "cycles, instructions,cache-misses,branch-misses,cpu-cycles,branch-misses"
    )
    assert [event.name for event in events] == ["branch-misses"]
    options = [event.option for event in parse_events("r10,instructions:u,cycles:k")]
    assert options == ["more=4:16", "more=0:1:u", "more=0:0:k"]


def test_what_the_machine_lacks_is_named_and_the_rest_goes_on() -> None:
    errors = {5: errno.ENOENT, 7: errno.EOPNOTSUPP, 8: errno.ENODEV}
    asked = parse_events("branch-misses,branches,stalled-cycles-frontend,stalled-cycles-backend")
    counters = more_counters(asked, lambda _type, config, _flags: errors.get(config, 0))
    assert [event.name for event in counters.events] == ["branches"]
    assert list(counters.missing()) == [
        "not counted: branch-misses, stalled-cycles-frontend (absent)",
        "not counted: stalled-cycles-backend (No such device)",
    ]
