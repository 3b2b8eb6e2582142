# SPDX-License-Identifier: Apache-2.0
"""What programs and tracer compute: scaled counters, busy clocks, and topology from sysfs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from host_library import generated_headers
from qjoule.contract import STEAL_UNKNOWN, WHOLE
from tracer_parts.parts import (
    MAX_CPUS,
    busy_at,
    busy_between,
    busy_set,
    counted,
    firsts,
    rings,
    stolen_ns,
    topology,
    write_topology,
)

HOUR_NS = 3600 * 10**9
SHORT_NS = 1 << 32  #: slices below this are computed without rounding times
times = st.integers(1, SHORT_NS - 1)
LEAST_NS = 10_000  #: less counted time than this, and than half of the slice, is a sliver
Reading = tuple[int, int, int]  #: counter, enabled_ns, running_ns
starts = st.tuples(*[st.integers(0, 1 << 62)] * 3)


busy_at(0, 1)  # compiled before the first example, which has a time limit


def least_ns(enabled: int) -> int:
    """Time of a slice that must be counted, written independently of the programs."""
    one_per_cent = -(-enabled * (WHOLE // 100) // WHOLE)
    return max(one_per_cent, min(LEAST_NS, -(-enabled // 2)))


def after(start: Reading, count: int, enabled: int, running: int) -> Reading:
    return start[0] + count, start[1] + enabled, start[2] + running


@given(starts, st.integers(0, 1 << 50), times)
def test_an_event_that_ran_all_the_time_is_exact(start: Reading, count: int, enabled: int) -> None:
    now = after(start, count, enabled, enabled)
    assert counted(start, now) == (WHOLE, count)


@given(starts, st.integers(0, 1 << 44), st.integers(2, SHORT_NS - 1), st.data())
@example((0, 0, 0), 3 * 10**9, SHORT_NS - 1, None)
def test_an_event_that_ran_for_a_part_is_scaled(
    start: Reading, count: int, enabled: int, data: st.DataObject | None
) -> None:
    running = data.draw(st.integers(least_ns(enabled), enabled - 1)) if data else enabled - 1
    share, increment = counted(start, after(start, count, enabled, running))
    assert share == running * WHOLE // enabled
    assert share < WHOLE
    assert increment == count * enabled // running


@given(starts, st.integers(0, 1 << 44), times, st.data())
@example((0, 0, 0), 10**6, 12_000_000, None)
def test_an_event_that_ran_for_a_sliver_did_not_count(
    start: Reading, count: int, enabled: int, data: st.DataObject | None
) -> None:
    most = least_ns(enabled) - 1
    running = data.draw(st.integers(0, most)) if data else enabled * 12 // 10_000
    assert counted(start, after(start, count, enabled, running)) == (0, 0)


@pytest.mark.parametrize(
    ("enabled", "running", "counts"),
    [
        *((12_000_000, 119_000, False), (12_000_000, 121_000, True), (100_000, 9_999, False)),
        *((100_000, 10_000, True), (8_000, 3_999, False), (8_000, 4_000, True)),
        *((3, 1, False), (1, 1, True)),
    ],
)
def test_how_much_of_a_stretch_must_be_counted(enabled: int, running: int, counts: bool) -> None:
    share, _ = counted((0, 0, 0), (1000, enabled, running))
    assert (share > 0) is counts


@given(starts, starts)
def test_hostile_readings_give_nothing_or_a_share(before: Reading, now: Reading) -> None:
    share, increment = counted(before, now)
    assert 0 <= share <= WHOLE
    backwards = any(n < b for b, n in zip(before, now, strict=True))
    if backwards or now[1] == before[1] or now[2] == before[2]:
        assert (share, increment) == (0, 0)


@given(
    st.integers(0, 1 << 60),
    st.lists(st.tuples(st.booleans(), st.integers(0, HOUR_NS)), max_size=30),
)
def test_a_busy_clock_shows_the_time_it_was_busy(
    begin_ns: int, spans: list[tuple[bool, int]]
) -> None:
    clock, now, busy_ns = 0, begin_ns, 0
    for busy, span_ns in spans:
        clock = busy_set(clock, busy, now)
        for elapsed_ns in (span_ns // 2, span_ns, span_ns + 5):
            assert busy_at(clock, now + elapsed_ns) == busy_ns + elapsed_ns * busy
        now += span_ns
        busy_ns += span_ns * busy


@given(st.integers(0, 1 << 60), st.integers(0, 1000))
def test_a_clock_read_before_it_was_set_is_early_by_as_much(now_ns: int, early_ns: int) -> None:
    clock = busy_set(0, True, now_ns + early_ns)
    assert busy_between(busy_at(clock, now_ns), busy_at(clock, now_ns + early_ns)) == early_ns
    assert busy_between(0, busy_at(clock, now_ns)) == -early_ns


# ---- topology ------------------------------------------------------------------------------------

#: Two packages of two cores with two threads, numbered as Linux does on servers.
TWO_PACKAGES = [(0, [0, 4]), (0, [1, 5]), (1, [2, 6]), (1, [3, 7])]


def test_threads_of_a_core_name_its_lowest_cpu(tmp_path: Path) -> None:
    cores = [(0, 0, 0), (0, 1, 1), (1, 0, 2), (1, 1, 3)]  # package, core, sibling
    expected = [(cpu, *cores[cpu % 4]) for cpu in range(8)]
    assert topology(write_topology(tmp_path, TWO_PACKAGES)) == expected


def test_offline_cpus_are_left_out_and_unknown_ones_are_their_own_core(tmp_path: Path) -> None:
    tree = write_topology(tmp_path, [(0, [0, 2]), (0, [3])])
    (tree / "online").write_text("0,2-4\n")
    assert topology(tree) == [(0, 0, 0, 0), (2, 0, 0, 0), (3, 0, 1, 3), (4, 0, 2, 4)]
    with pytest.raises(FileNotFoundError):
        topology(tmp_path / "absent")


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        *(("physical_package_id", text, (1, 0, 1, 1)) for text in ("-1", "", "x", "65536")),
        *(("thread_siblings_list", text, (1, 3, 0, 1)) for text in ("5", "4000000000", "-1", "x")),
    ],
)
def test_a_nonsense_package_is_0_and_siblings_without_the_cpu_are_not_believed(
    tmp_path: Path, file: str, text: str, expected: tuple[int, ...]
) -> None:
    """If the firmware gives no package, the kernel shows -1."""
    tree = write_topology(tmp_path, [(0, [0]), (3, [1])])
    (tree / "cpu1/topology" / file).write_text(f"{text}\n")
    assert topology(tree)[1] == expected


def test_rings_go_round_the_cpus_of_a_core(tmp_path: Path) -> None:
    cores = [*TWO_PACKAGES, (1, [8, 9, 10]), (1, [11])]
    most, following = rings(topology(write_topology(tmp_path, cores)))
    assert most == 3
    for _, cpus in cores:
        walked = [cpus[0]]
        while following[walked[-1]] != cpus[0]:
            walked.append(following[walked[-1]])
        assert walked == cpus
    assert following[12:] == list(range(12, MAX_CPUS))


def test_cores_and_packages_have_the_entry_of_their_lowest_cpu(tmp_path: Path) -> None:
    of_core, of_package = firsts(topology(write_topology(tmp_path, TWO_PACKAGES)))
    alone = list(range(8, MAX_CPUS))  # what comes online later
    assert of_core == [0, 1, 2, 3, 0, 1, 2, 3, *alone]
    assert of_package == [0, 0, 2, 2, 0, 0, 2, 2, *alone]


# ---- the looks of the keeper ---------------------------------------------------------------------

TREE = Path(__file__).parents[3]
#: Asks ten times a second, and prints how many looks each 100 s had.
PROGRAM = """
#include <time.h>
static int fake_clock(clockid_t, struct timespec *now);
#define clock_gettime fake_clock
#include "root/bind.c"
static long tenths = 12340;
static int fake_clock(clockid_t id, struct timespec *now)
{
	now->tv_sec = tenths / 10;
	return 0;
}
int main(void)
{
	for (int part = 0; part < 5; part++) {
		int looks = 0;
		for (long end = tenths + 1000; tenths < end; tenths++)
			looks += may_bind();
		if (part == 2)
			tenths += 10000; /* nobody asks for 1,000 s */
		printf("%d ", looks);
	}
}
"""


def test_looks_come_back(tmp_path: Path) -> None:
    source, program = tmp_path / "looks.c", tmp_path / "looks"
    source.write_text(PROGRAM)
    folders = [f"-I{TREE / name}" for name in ("tracer", "tracer/root", "bpf")]
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-w", generated_headers(tmp_path), *folders]
    build = ["gcc", *flags, str(source), "-o", str(program)]
    subprocess.run([*build, "-ffunction-sections", "-Wl,--gc-sections"], check=True)
    looks = subprocess.run([program], check=True, capture_output=True, text=True).stdout.split()
    assert looks == ["73", "10", "10", "73", "10"]


TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def stat(*steal: int, first: bytes = b"cpu  9 9 9 9 9 9 9 9 9 9") -> bytes:
    """/proc/stat with the ticks stolen of each CPU."""
    lines = [b"cpu%d 1 2 3 4 5 6 7 %d 0 0" % cpu_ticks for cpu_ticks in enumerate(steal)]
    return b"\n".join([first, *lines, b"intr 8 " + b"0 " * 10_000, b"cpu0 1 1 1 1 1 1 1 99", b""])


def test_stolen_time_counts_from_the_first_reading(tmp_path: Path) -> None:
    texts = [stat(100, 7, 0), stat(103, 7, 1)]
    assert stolen_ns(tmp_path / "stat", texts[:1], range(3)) == [0, 0, 0]
    assert stolen_ns(tmp_path / "stat", texts, range(3)) == [3 * TICK_NS, 0, TICK_NS]


def test_stolen_time_of_a_thousand_cpus_is_read_to_the_last(tmp_path: Path) -> None:
    before = [10**15 + cpu for cpu in range(MAX_CPUS)]
    texts = [stat(*before), stat(*(ticks + cpu for cpu, ticks in enumerate(before)))]
    assert all(len(text) > 1 << 15 for text in texts)
    expected = [cpu * TICK_NS for cpu in range(MAX_CPUS)]
    assert stolen_ns(tmp_path / "stat", texts, range(MAX_CPUS)) == expected


def test_a_counter_of_stolen_time_that_goes_back_adds_nothing(tmp_path: Path) -> None:
    texts = [stat(100), stat(105), stat(2), stat(4), stat(2**64 - 1), stat(0), stat(3)]
    assert stolen_ns(tmp_path / "stat", texts, [0]) == [10 * TICK_NS]


@pytest.mark.parametrize(
    "text",
    [
        *(
            b"",
            b"cpu0",
            b"cpu0 1 2 3 4 5 6 7\n",
            b"cpu0 1 2 3 4 5 6 7 8",
            b"cpu0 1 2 3 4 5 6 7 -8\n",
        ),
        *(b"cpu0 1 2 3 4 5 6 7 99999999999999999999\n", b"cpu0x 1 2 3 4 5 6 7 8\n", b"\0" * 9000),
        *(b"cpu1024 1 2 3 4 5 6 7 8\n", b"cpu-1 1 2 3 4 5 6 7 8\n", b"cpu0 " + b"1" * 600 + b"\n"),
        b"intr 1\ncpu0 1 2 3 4 5 6 7 8\n",
    ],
)
def test_stolen_time_is_unknown_where_proc_stat_does_not_say_it(
    text: bytes, tmp_path: Path
) -> None:
    assert stolen_ns(tmp_path / "stat", [text, text], [0, MAX_CPUS - 1]) == [STEAL_UNKNOWN] * 2
