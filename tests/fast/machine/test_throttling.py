# SPDX-License-Identifier: Apache-2.0
"""Thermal throttling, in a recording or live: read from the kernel and shown in results."""

from __future__ import annotations

import io
import json
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import fake_tracer
from captured_trace import captured_trace, eventful
from fake_tracer import BEGIN_NS, end
from metrics_pages import META, opening, query, window
from qjoule.commands import attribute
from qjoule.live.options import LiveOptions
from qjoule.live.sources import StreamSource
from qjoule.machine.throttling import PERIOD_S, RECENT_S, RecentCounts, ThrottleCounts
from qjoule.snapshots import Controls
from qjoule.spool.convert import convert
from qjoule.stream.blocks import Stream
from qjoule.trace.meta import MOST_THROTTLED, Meta, Throttled
from qjoule.trace.meta_file import parse_meta

#: What files may hold: nothing, no number, a number that no counter shows.
HOSTILE = ("", "-3", "3.5", "1e9", "0x10", "\x1b[31m7", "9" * 40, "12 34", "٣", "\0" * 9)


def count(root: Path, cpu: int, kind: str, text: str) -> None:
    folder = root / f"sys/devices/system/cpu/cpu{cpu}/thermal_throttle"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{kind}_throttle_count").write_text(text + "\n", encoding="utf-8")


def between(root: Path, before: dict[int, str], after: dict[int, str]) -> Throttled | None:
    """What is found if the cores of these CPUs have the first texts, then the second."""
    for cpu, text in before.items():
        count(root, cpu, "core", text)
    counts = ThrottleCounts(root)
    for cpu, text in after.items():
        count(root, cpu, "core", text)
    return counts.since()


def test_events_of_a_package_are_counted_once(tmp_path: Path) -> None:
    for cpu in range(4):
        count(tmp_path, cpu, "core", "10")
        count(tmp_path, cpu, "package", "100")
    counts = ThrottleCounts(tmp_path)
    assert counts.since() == Throttled(core=0, package=0)
    for cpu in range(4):
        count(tmp_path, cpu, "package", "103")
    count(tmp_path, 2, "core", "17")
    assert counts.since() == Throttled(core=7, package=3)


def test_a_kernel_without_counts_says_nothing(tmp_path: Path) -> None:
    assert ThrottleCounts(tmp_path).since() is None
    (tmp_path / "sys/devices/system/cpu/cpu0").mkdir(parents=True)
    assert ThrottleCounts(tmp_path).since() is None
    assert between(tmp_path, {}, {1: "5"}) is None, "a CPU that came later has no earlier count"


def test_counts_that_vanish_or_jump_are_not_believed(tmp_path: Path) -> None:
    assert between(tmp_path, {0: "50", 1: "7"}, {0: "2", 1: "9"}) == Throttled(core=2)
    assert between(tmp_path, {0: "0", 1: "9"}, {0: str(2**63), 1: "9"}) == Throttled(core=0)
    assert between(tmp_path, {0: "5", 1: "x"}, {0: "x", 1: "5"}) is None


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_of_a_file_breaks_a_recording(tmp_path: Path, text: str) -> None:
    assert between(tmp_path, {0: text, 1: "1"}, {0: "4", 1: "4"}) == Throttled(core=3)
    assert between(tmp_path, {0: "4", 1: "1"}, {0: text, 1: "4"}) == Throttled(core=3)


@given(st.integers(), st.integers())
def test_a_trace_holds_only_possible_numbers(core: int, package: int) -> None:
    possible = all(0 <= count <= MOST_THROTTLED for count in (core, package))
    text = json.loads(Meta().to_json()) | {"throttled": {"core": core, "package": package}}
    if possible:
        assert parse_meta(json.dumps(text).encode()).throttled == Throttled(core, package)
        return
    with pytest.raises(ValueError, match="throttled"):
        parse_meta(json.dumps(text).encode())


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (Throttled(core=1_200, package=3), "(events of a core: 1,200, of a package: 3)"),
        (Throttled(package=1), "itself (events of a package: 1)"),
        (Throttled(0, 0), ""),
        (None, ""),
    ],
)
def test_a_result_tells_it(tmp_path: Path, events: Throttled | None, expected: str) -> None:
    trace = tmp_path / "trace"
    captured_trace(trace, eventful(1.6), throttled=lambda: events)
    assert convert(trace).meta.throttled == events
    arguments = [str(trace), "--format", "json", "--calibration", "none"]
    result = CliRunner().invoke(attribute.command, arguments)
    notes = [note for note in json.loads(result.output)["model"]["notes"] if "throttled" in note]
    assert len(notes) == bool(expected) and expected in "".join(notes)


# ---- live ----------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_live_counts_are_those_of_the_last_minute_and_read_seldom(tmp_path: Path) -> None:
    clock = Clock()
    count(tmp_path, 0, "core", "5")
    counts = RecentCounts(tmp_path, clock)
    count(tmp_path, 0, "core", "8")
    recent, readings = [], [counts.newest()]
    for _ in range(200):
        clock.now_s += 1
        recent.append(counts.recent())
        readings.append(counts.newest())
    since_s = [second for second, reading in enumerate(recent, 1) if reading == Throttled(core=3)]
    assert since_s == list(range(int(PERIOD_S), int(PERIOD_S + RECENT_S)))
    assert all(
        recent[second - 1] == Throttled(core=0) for second in range(1, 201) if second not in since_s
    )
    assert sum(reading is not other for reading, other in pairwise(readings)) == 200 // PERIOD_S
    clock.now_s += 30 * RECENT_S
    count(tmp_path, 0, "core", "9")
    assert counts.recent() == Throttled(core=1), "nobody asked for long: since the last reading"


@pytest.mark.parametrize("text", HOSTILE)
def test_live_counts_survive_cpus_that_come_and_go(tmp_path: Path, text: str) -> None:
    clock = Clock()
    counts = RecentCounts(tmp_path, clock)

    def later() -> Throttled | None:
        clock.now_s += PERIOD_S
        return counts.recent()

    assert later() is None
    count(tmp_path, 0, "core", "7")
    assert later() is None, "a CPU that came later has no earlier count"
    clock.now_s += RECENT_S
    count(tmp_path, 1, "core", text)
    assert later() == Throttled(core=0)
    shutil.rmtree(tmp_path / "sys")
    assert later() is None
    count(tmp_path, 0, "core", "8")
    assert later() == Throttled(core=1)
    count(tmp_path, 0, "core", "2")
    assert later() is None


def live_notes(root: Path, seconds: int, events: dict[int, str]) -> list[tuple[str, str]]:
    """What the interval and the total say in each second. `events`: the count from then on."""
    clock = Clock()
    count(root, 0, "package", "40")
    windows = b"".join(
        window(number, [query(1, 100)], number + 1, number + 1, 10**9) for number in range(seconds)
    )
    stream = Stream(io.BytesIO(opening([1]) + windows + end(BEGIN_NS + seconds * 10**9)))
    options = LiveOptions(throttling=RecentCounts(root, clock))
    controls, told = Controls(1.0), []
    for snapshot in StreamSource(stream, fake_tracer.context(META), options).snapshots(controls):
        told.append((snapshot.interval.trace.throttled, snapshot.total.trace.throttled))
        for result in (snapshot.interval, snapshot.total):
            notes = [note for note in result.model.notes if "throttled" in note]
            assert notes == [result.trace.throttled] * bool(result.trace.throttled)
        clock.now_s += 1
        if len(told) in events:
            count(root, 0, "package", events[len(told)])
        if len(told) == seconds - 2:
            controls.reset()
    return told


def test_a_live_result_tells_it_for_a_minute_and_its_total_until_a_reset(tmp_path: Path) -> None:
    notes = live_notes(tmp_path, 100, {5: "43"})
    minute, ever = zip(*notes, strict=True)
    assert {note for note in minute if note} == {
        "the CPU was too hot in the last minute and throttled itself (events of a package: 3). "
        "The same work draws other power on a cool CPU"
    }
    assert sum(map(bool, minute)) == RECENT_S and not minute[4] and minute[10] and not minute[-1]
    assert all("while this was recorded" in note for note in ever[10:98])
    assert not any((*ever[:5], *ever[98:]))


def test_a_live_result_is_silent_without_heat_or_counts(tmp_path: Path) -> None:
    assert not any(map(any, live_notes(tmp_path, 30, {})))
    assert not any(map(any, live_notes(tmp_path, 30, {5: "x", 20: "40"})))
