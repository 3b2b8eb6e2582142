# SPDX-License-Identifier: Apache-2.0
"""The C sweep against a reference in plain Python, other batch cuts, and a fuzzer."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qjoule.model import _sweep
from qjoule.model.arrays import (
    COUNTERS,
    EFFECTS,
    Anomalies,
    Entries,
    Machine,
    Segments,
    WindowBatch,
)
from qjoule.model.energy import Bool, WindowEnergy
from qjoule.model.windows import SegmentWindows
from sweep_reference import Found, reference

TIMES = ("idle_ns", "lost_ns", "active_ns", "core_ns")


@dataclass(frozen=True)
class Drawn:
    machine: Machine
    bounds: list[int]
    segments: Segments


def windows(drawn: Drawn) -> SegmentWindows:
    bounds = np.array(drawn.bounds, np.int64)
    shape = (0, max(len(bounds) - 1, 0))
    nothing = np.zeros(shape, np.int64)
    energy = WindowEnergy((), bounds, nothing, np.zeros(shape, np.uint8), nothing)
    return SegmentWindows(drawn.machine, energy)


def rows(segments: Segments, part: slice | Bool) -> Segments:
    columns: Any = [getattr(segments, column.name) for column in fields(Segments)]
    taken: list[Any] = [None if column is None else column[part] for column in columns]
    return Segments(*taken)


def run(drawn: Drawn, cuts: list[int]) -> tuple[list[WindowBatch], Anomalies]:
    stream = windows(drawn)
    edges = [0, *sorted(cuts), len(drawn.segments.t0_ns)]
    batches = [stream.add(rows(drawn.segments, slice(a, b))) for a, b in pairwise(edges)]
    return [*batches, stream.finish()], stream.anomalies


def joined(batches: list[WindowBatch]) -> dict[str, bytes]:
    """All columns of all windows, as bytes."""
    out = {}
    for column in fields(Entries):
        parts = [getattr(batch.entries, column.name) for batch in batches]
        if column.name == "window":
            parts = [part + batch.first for part, batch in zip(parts, batches, strict=True)]
        out[column.name] = b"".join(part.tobytes() for part in parts)
    for name in TIMES:
        out[name] = b"".join(getattr(batch, name).tobytes() for batch in batches)
    return out


@st.composite
def drawings(draw: st.DrawFn, *, ordered: bool = True) -> Drawn:
    """Up to two packages of cores with one to three threads, and segments near the windows."""
    cores = draw(st.lists(st.tuples(st.sampled_from([0, 3]), st.integers(1, 3)), max_size=3))
    package = [p for p, threads in cores for _ in range(threads)]
    core = [i for i, (_, threads) in enumerate(cores) for _ in range(threads)]
    ids = sorted(draw(st.sets(st.integers(0, 9), min_size=len(core), max_size=len(core))))
    small = np.array(draw(st.lists(st.booleans(), min_size=len(ids), max_size=len(ids))), bool)
    numbers, package_of, core_of = (np.array(x, np.int64) for x in (ids, package, core))
    machine = Machine(numbers, package_of, core_of, small)
    start = draw(st.sampled_from([0, -50, 10**15, 2**62]))
    unit = draw(st.sampled_from([1, 30_000]))  #: tails of sleep are longer than a few ns
    step = st.integers(1, 30).map(lambda steps: steps * unit)
    steps = draw(st.lists(step | st.just(10**9), max_size=5))
    bounds = [start, *(start + np.cumsum(steps, dtype=np.int64)).tolist()]
    bounds = bounds[draw(st.integers(0, 1)) :]
    near = st.integers(-5, 60).map(lambda steps: start + steps * unit)
    t_ns = near | st.sampled_from([start, *bounds])
    huge = st.sampled_from([-(2**63), 2**63 - 1])
    cpu, group = st.integers(0, 9), st.sampled_from([0, 1, 2, 2**62, -5])
    row = st.tuples(t_ns, t_ns | huge, cpu, group) | st.tuples(t_ns | huge, t_ns, cpu, group)
    drawn_rows = draw(st.lists(row, max_size=30))
    drawn_rows = sorted(drawn_rows, key=lambda r: r[0]) if ordered else drawn_rows
    t0, t1, cpus, groups = np.array(drawn_rows, np.int64).reshape(-1, 4).T
    parts = st.lists(st.floats(0, 1, width=32), min_size=len(drawn_rows), max_size=len(drawn_rows))
    drawn = draw(st.none() | parts)
    stolen = None if drawn is None else np.array(drawn, np.float32)
    segments = Segments(t0, t1, cpus.astype(np.int32), groups, stolen=stolen)
    if not draw(st.booleans()):
        return Drawn(machine, bounds, segments)
    count = st.integers(0, 10**5) | st.sampled_from([2**53 + 1, 2**64 - 1])
    n = COUNTERS * len(drawn_rows)
    counts, valid = (draw(st.lists(of, min_size=n, max_size=n)) for of in (count, st.booleans()))
    share = st.floats(0, 1, width=32) | st.sampled_from([float("nan"), -1.0, 2.0])
    scaled = draw(st.none() | st.lists(share, min_size=len(drawn_rows), max_size=len(drawn_rows)))
    counters = np.array(counts, np.uint64).reshape(-1, COUNTERS)
    read = np.array(valid, bool).reshape(-1, COUNTERS)
    shares = None if scaled is None else np.array(scaled, np.float32)
    return Drawn(machine, bounds, replace(segments, counters=counters, valid=read, scaled=shares))


def compare(batches: list[WindowBatch], expected: Found) -> None:
    """Compares whole numbers exactly, and reals up to the rounding error of adding doubles."""
    keys = []
    for batch in batches:
        e = batch.entries
        for i in range(len(e.window)):
            key = (int(e.window[i]) + batch.first, int(e.package[i]), int(e.group[i]))
            want = expected.entries[key]
            keys.append(key)
            assert (e.cpu_ns[i], e.overlap_ns[i]) == (want.cpu_ns, want.overlap_ns)
            assert e.shared_ns[i] == pytest.approx(float(want.shared_ns), rel=1e-12, abs=1e-6)
            assert e.stolen_ns[i] == pytest.approx(float(want.stolen_ns), rel=1e-12, abs=1e-6)
            assert e.scaled_ns[i] == pytest.approx(float(want.scaled_ns), rel=1e-12, abs=1e-6)
            assert e.counters[i].tolist() == pytest.approx(want.counters, rel=1e-15)
            assert e.counted_ns[i].tolist() == want.counted_ns
            assert e.small[i].tolist() == pytest.approx(want.small, rel=1e-15)
            overlap = [float(count) for count in want.overlap_counters]
            assert e.overlap_counters[i] == pytest.approx(overlap, rel=1e-12, abs=1e-6)
            effects = [float(want.effects[name]) for name in EFFECTS]
            assert e.effects[i] == pytest.approx(effects, rel=1e-9, abs=1e-6)
        for name in ("active_ns", "core_ns"):
            for (k, p), ns in np.ndenumerate(getattr(batch, name)):
                assert ns == getattr(expected, name)[k + batch.first, p]
    assert keys == sorted(expected.entries)


@given(drawings(ordered=False) | drawings(), st.lists(st.integers(0, 30), max_size=6))
def test_batches_leave_no_trace_to_the_bit(drawn: Drawn, cuts: list[int]) -> None:
    cuts = [min(cut, len(drawn.segments.t0_ns)) for cut in cuts]
    (uncut, anomalies), (parts, again) = run(drawn, []), run(drawn, cuts)
    assert joined(uncut) == joined(parts)
    assert anomalies == again


def busy_machine(cpus: int, packages: int, count: int, end_ns: int, longest_ns: int) -> Drawn:
    """Segments of 20 groups at random on cores with two threads each."""
    random = np.random.default_rng(cpus)
    cpu = np.arange(cpus)
    t0 = np.sort(random.integers(0, end_ns, count))
    counts = random.integers(0, 1000, (count, COUNTERS)).astype(np.uint64)
    segments = Segments(
        t0,
        t0 + random.integers(1, longest_ns, count),
        random.integers(0, cpus, count).astype(np.int32),
        random.integers(0, 20, count),
        counts,
        np.ones((count, COUNTERS), bool),
    )
    bounds = np.linspace(0, end_ns, 9).astype(np.int64).tolist()
    return Drawn(Machine(cpu, cpu * packages // cpus, cpu // 2), bounds, segments)


@given(drawings() | drawings(ordered=False))
def test_windows_are_those_of_the_reference(drawn: Drawn) -> None:
    batches, anomalies = run(drawn, [])
    expected = reference(drawn.machine, drawn.bounds, drawn.segments)
    compare(batches, expected)
    limit = 2**63 - 1
    wanted = {name: min(value, limit) for name, value in vars(expected.anomalies).items()}
    assert vars(anomalies) == wanted
    for batch in batches:
        shared = np.zeros(batch.active_ns.shape)
        np.add.at(shared, (batch.entries.window, batch.entries.package), batch.entries.shared_ns)
        assert shared == pytest.approx(batch.active_ns, rel=1e-12, abs=1e-6)
        assert (batch.active_ns <= batch.core_ns).all()
        assert (batch.entries.overlap_ns <= batch.entries.cpu_ns).all()


@pytest.mark.parametrize("cpus", [65, 200])
def test_any_number_of_cpus(cpus: int) -> None:
    drawn = busy_machine(cpus, 2, 250, 1500, 300)
    compare(run(drawn, [])[0], reference(drawn.machine, drawn.bounds, drawn.segments))


ROOT = Path(__file__).parents[3]


def test_a_sanitized_fuzzer_finds_no_fault(tmp_path: Path) -> None:
    """The inputs are always the same. To search further, run it by hand."""
    sweep, program = ROOT / "attribution/sweep", tmp_path / "sweep_fuzz"
    flags = ["-g", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{sweep}", "-o", str(program)]
    flags += ["-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all"]
    parts = [sweep / f"{module}.c" for module in ("sweep", "events", "tails", "ends", "entries")]
    sources = [ROOT / "tests/support/fuzz/sweep_fuzz.c", *parts]
    subprocess.run(["clang", *flags, *map(str, sources)], check=True)
    # A new program starts with the largest memory of the process that started it (getrusage(2)).
    limits = ["-runs=20000", "-seed=1", "-max_len=1024", "-len_control=5", "-rss_limit_mb=0"]
    done = subprocess.run([str(program), *limits], cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


def test_columns_are_added_to_the_rows_of_their_index() -> None:
    sums = np.zeros((2, 2))
    _sweep.add(sums, np.array([1, 0, 1]), np.array([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]))
    assert sums.tolist() == [[1.0, 4.0], [2.0, 8.0]]


@pytest.mark.parametrize(
    ("sums", "index", "values", "error"),
    [
        (4, [0, 2], 4, IndexError),
        (4, [0, -1], 4, IndexError),
        (3, [0, 0], 4, ValueError),
        (4, [0, 1], 3, ValueError),
    ],
)
def test_columns_that_do_not_fit_are_refused(
    sums: int, index: list[int], values: int, error: type[Exception]
) -> None:
    with pytest.raises(error):
        _sweep.add(np.zeros(sums), np.array(index), np.ones(values))
