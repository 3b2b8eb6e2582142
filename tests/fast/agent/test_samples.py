# SPDX-License-Identifier: Apache-2.0
"""Drawn queries: from the stream to the store, and what is estimated from the store."""

from __future__ import annotations

import csv
import ctypes
import io
import json
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import fake_tracer
from fake_tracer import BEGIN_NS, MS
from host_library import compiled
from metrics_pages import META, fingerprint_of, opening, query, window
from qjoule.agent import store as agent_store
from qjoule.agent.hourly_tables import SAMPLE_ROWS, WAITS
from qjoule.agent.journal import Retention
from qjoule.agent.minute import Minute, sample_rows
from qjoule.agent.rollup_layout import SAMPLES, Part
from qjoule.agent.store import Store
from qjoule.contract import SAMPLE, Block, QueryFlag
from qjoule.engine.live_groups import PER_SERVER
from qjoule.live.options import LiveOptions
from qjoule.live.sources import StreamSource
from qjoule.metrics.interval import interval_of
from qjoule.model.arrays import F64
from qjoule.snapshots import Controls, Snapshot
from qjoule.stream.blocks import Stream, encode_block
from qjoule_fleet.commands import samples as command
from qjoule_fleet.files import Refused, dataset
from qjoule_fleet.samples import FEW, KEYS, by_keys, drawn_in, estimate
from qjoule_fleet.times import Range

START_S = 1_795_000_000 // 3600 * 3600
HOUR = Range(START_S, START_S + 3600)
CPU_NS = 1_000_000


def drawn(count: int, one_in: int) -> np.ndarray:
    records = np.zeros(count, SAMPLE)
    of = records["query"]
    of["shape"], of["server"], of["executions"], of["flags"] = 1, 1, 1, QueryFlag.OK
    of["begin_ns"] = BEGIN_NS + np.arange(count) * MS
    of["end_ns"] = of["begin_ns"] + MS
    records["cpu_ns"] = CPU_NS
    records["probability"] = (1 << 32) // one_in
    return records


def snapshot(*records: np.ndarray) -> Snapshot:
    """The snapshot of a stream of one statement, of which these queries were drawn."""
    windows = [window(n, [query(1, 10_000, calls=10)], 1000 * (n + 1)) for n in range(4)]
    windows[0] += b"".join(encode_block(Block.SAMPLE, records_) for records_ in records)
    content = opening((1,)) + b"".join(windows) + fake_tracer.end(BEGIN_NS + 400 * MS)
    options = LiveOptions(groups=(PER_SERVER,), samples=True)
    source = StreamSource(Stream(io.BytesIO(content)), fake_tracer.context(META), options)
    (snapshot,) = source.snapshots(Controls(10.0, totals=False))
    return snapshot


def test_a_query_has_its_share_of_its_statements_energy() -> None:
    assert snapshot().sampled is None
    live = snapshot(drawn(8, one_in=5))
    assert live.sampled is not None
    interval = interval_of(live.interval)
    rows = sample_rows(live.sampled, interval, START_S + 10.0)
    (shape,) = (key for key in interval.queries if key.fingerprint == fingerprint_of(1))
    amounts = interval.queries[shape].amounts
    assert {row["fingerprint"] for row in rows} == {shape.fingerprint} and len(rows) == 8
    assert all(row["probability"] == pytest.approx(1 / 5) for row in rows)
    for row in rows:
        assert row["energy_nj"] == round(amounts.energy_nj * CPU_NS / amounts.cpu_ns)
        assert row["error_nj"] > 0 and row["outcome"] == "ok" and row["rows"] is None
        assert not row.keys() & set(WAITS)
    ago_s = [START_S + 10.0 - row["time"] / 1e6 for row in rows]
    assert ago_s[0] == pytest.approx(0.399, abs=1e-5) and ago_s == sorted(ago_s, reverse=True)


def test_waits_of_drawn_queries_are_of_those_that_are_recorded(tmp_path: Path) -> None:
    queries = drawn(8, one_in=2)
    queries["query"]["flags"][:3] = QueryFlag.OK | QueryFlag.WAITS
    queries["query"]["wait_ns"][:] = range(1, 7)
    live = snapshot(queries)
    assert live.sampled is not None
    rows = sample_rows(live.sampled, interval_of(live.interval), START_S + 10.0)
    assert [[row.get(name) for name in WAITS[1:]] for row in rows] == [
        *[[1, 2, 3, 4, 5, 6]] * 3,
        *[[None] * 6] * 5,
    ]
    written(tmp_path, minute(*rows, row(START_S + 5, outcome="error")))
    drawn_queries = drawn_in(dataset(str(tmp_path)), HOUR, [])
    ok, error = sorted(
        by_keys(drawn_queries, ["outcome"]).to_pylist(),
        key=lambda by_outcome: str(by_outcome["outcome"] != "ok"),
    )
    assert ok["waits_latency_s"] == pytest.approx(2 * 3 * MS / 1e9)
    assert ok["wait_lock_s"] == pytest.approx(2 * 3 * 2 / 1e9)
    assert error["waits_latency_s"] is None and error["wait_lock_s"] is None


def row(at_s: float, **more: object) -> dict[str, object]:
    values = {"calls": 1, "latency_ns": 5, "cpu_ns": 10**6, "energy_nj": 10**9, "error_nj": 1e8}
    names = {"server": "db:1", "fingerprint": "a" * 16, "user": "app", "client": "192.0.2.7"}
    return {"time": round(at_s * 1e6), "probability": 0.5, **values, **names, **more}


def minute(*rows: dict[str, object], start_s: int = START_S) -> Minute:
    written_minute = Minute(start_s, 60.0, "measured", "separate")
    written_minute.add_samples(rows)
    return written_minute


def written(path: Path, *minutes: Minute) -> Path:
    store = Store(path, "db1", Retention(30, 100))
    for minute_ in minutes:
        assert store.write(minute_, "package")
    return path


def test_estimates_from_the_store(tmp_path: Path) -> None:
    ours = [row(START_S + n) for n in range(30)]
    theirs = [row(START_S + 60 + n, user=None, probability=1.0) for n in range(3)]
    written(tmp_path, minute(*ours), minute(*theirs, start_s=START_S + 60))
    refused: list[Refused] = []
    by_user = by_keys(drawn_in(dataset(str(tmp_path)), HOUR, refused), ["user"]).to_pylist()
    assert not refused and [estimated["user"] for estimated in by_user] == ["app", "(unknown)"]
    app, other = by_user
    assert (app["drawn"], app["calls"], app["joules"]) == (30, 60, pytest.approx(60))
    assert app["calls_low"] < 60 < app["calls_high"] and not app["rough"]
    # Those that were certain leave nothing open but the error of their energy.
    assert (other["calls_low"], other["calls"], other["calls_high"]) == (3, 3, 3)
    assert other["joules_high"] - other["joules"] == pytest.approx(0.3)
    few = drawn_in(dataset(str(tmp_path)), Range(START_S, START_S + 5), refused)
    assert few.num_rows == 5 and by_keys(few, ["user"])["rough"].to_pylist() == [True]


def test_an_hour_has_room_for_so_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_store, "MAX_SAMPLES", 5)
    store = Store(tmp_path, "db1", Retention(30, 100))
    for number in range(3):
        at_s = START_S + 60 * number
        assert store.write(minute(row(at_s), row(at_s), start_s=at_s), "package")
    assert store.dropped_samples == 1
    assert drawn_in(dataset(str(tmp_path)), HOUR, []).num_rows == 5


@pytest.mark.parametrize("probability", [0.0, 1.5, float("nan")])
def test_damaged_and_foreign_files_are_left_out(tmp_path: Path, probability: float) -> None:
    written(tmp_path, minute(row(START_S)))
    (good,) = (tmp_path / SAMPLES).rglob("*.parquet")
    part = Part(SAMPLES, "db2", "0" * 16, START_S)
    bad = tmp_path / part.path
    bad.parent.mkdir(parents=True)
    table = pa.Table.from_pylist([row(START_S, probability=probability)], SAMPLE_ROWS)
    pq.write_table(table.replace_schema_metadata(part.metadata()), bad)
    truncated = bad.with_name(bad.name.replace("0" * 16, "1" * 16))
    truncated.write_bytes(good.read_bytes()[:-40])
    moved = bad.with_name(bad.name.replace("0" * 16, "2" * 16))
    moved.write_bytes(good.read_bytes())
    refused: list[Refused] = []
    assert drawn_in(dataset(str(tmp_path)), HOUR, refused).num_rows == 1
    assert len(refused) == 3 and "probability" in " ".join(refusal.reason for refusal in refused)


def ask(*arguments: str) -> str:
    result = CliRunner().invoke(command.command, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


TIMES = ("--from", "2026-11-18T00:00Z", "--to", "2026-11-20T00:00Z")


def test_the_command(tmp_path: Path) -> None:
    assert set(command.KEYS) == set(KEYS)
    written(tmp_path, minute(*(row(START_S + n) for n in range(30))))
    printed = json.loads(ask(str(tmp_path), "--by", "user,client", "--json", *TIMES))
    assert [
        (estimated["user"], estimated["client"], estimated["calls"]) for estimated in printed
    ] == [("app", "192.0.2.7", 60)]
    (line,) = csv.DictReader(io.StringIO(ask(str(tmp_path), "--format", "csv", *TIMES)))
    assert line["user"] == "app"
    table = ask(str(tmp_path), "--by", "user,client", *TIMES)
    assert "joules: measured; power at rest: separate" in table
    assert "60 ± " in table and "rough" not in table


# --------------------------------------------------------------------------------------------------
#
# Laws of the sample: each shape has a query, estimates are unbiased, intervals cover 95 %.

U64 = npt.NDArray[np.uint64]


@cache
def _library() -> ctypes.CDLL:
    flags = (
        "-std=gnu11",
        "-D_GNU_SOURCE",
        "-O2",
        "-Wno-unused-parameter",
        "-Itests/support/fuzz/host",
    )
    loaded = compiled("tests/support/tracer_parts/sample_host.c", compiler="clang", flags=flags)
    loaded.sample_begin.argtypes = [ctypes.c_uint32, ctypes.c_uint64]
    loaded.sample_run.argtypes = [ctypes.c_size_t, *[ctypes.c_void_p] * 3]
    loaded.sample_lost.restype = ctypes.c_uint32
    return loaded


def draw(samples: int, shape: U64, end_ns: U64, *, seed: int = 1) -> F64:
    """The probability with which each query was drawn; 0: it was not. Times do not decrease."""
    library = _library()
    shape, end_ns = np.ascontiguousarray(shape, np.uint64), np.ascontiguousarray(end_ns, np.uint64)
    probability = np.zeros(len(shape))
    library.sample_begin(samples, seed)
    library.sample_run(len(shape), *(array.ctypes.data for array in (shape, end_ns, probability)))
    return probability


def lost() -> int:
    """Queries of the last `draw` that were drawn, but for which there was no room."""
    return int(_library().sample_lost())


PERIOD_S = 300
REPEATS = 2000
#: Coverage that 95 % intervals must have; its standard error over `REPEATS` is 0.5 %.
LOW, HIGH = 0.93, 0.97
SEED = 20261124


def times(rates_per_s: list[float], *, hours: float = 1.0, seed: int = SEED) -> tuple[U64, U64]:
    """Shapes with these rates, whose queries end at random: shape and time of each."""
    rng = np.random.default_rng(seed)
    seconds = hours * 3600
    counts = rng.poisson([rate * seconds for rate in rates_per_s])
    shape = np.repeat(np.arange(1, len(rates_per_s) + 1), counts).astype(np.uint64)
    end_ns = (rng.random(len(shape)) * seconds * 1e9).astype(np.uint64) + 10**9
    order = np.argsort(end_ns)
    return shape[order], end_ns[order]


@given(
    st.lists(st.floats(0.001, 20), min_size=1, max_size=12),
    st.integers(1, 50),
    st.integers(0, 2**32),
)
def test_each_shape_has_a_query_in_each_period(rates: list[float], samples: int, seed: int) -> None:
    shape, end_ns = times(rates, hours=0.5, seed=seed)
    probability = draw(samples, shape, end_ns, seed=seed)
    cells = set(zip(shape.tolist(), (end_ns // (PERIOD_S * 10**9)).tolist(), strict=True))
    drawn = probability > 0
    drawn_cells = zip(
        shape[drawn].tolist(), (end_ns[drawn] // (PERIOD_S * 10**9)).tolist(), strict=True
    )
    assert lost() or set(drawn_cells) == cells
    assert ((probability >= 0) & (probability <= 1)).all()


@pytest.mark.parametrize("rate", [0.5, 400.0])
def test_as_many_are_drawn_however_many_there_are(rate: float) -> None:
    shape, end_ns = times([rate])
    drawn = np.count_nonzero(draw(10, shape, end_ns))
    periods = 3600 / PERIOD_S
    # In the first period the number of calls is not known yet: the sum of 10 / n over its calls.
    first = 10 * (1 + np.log(max(rate * PERIOD_S / 10, 1)))
    assert drawn <= 1.5 * (11 * periods + first)


def test_beyond_a_bound_draws_are_counted_as_lost() -> None:
    shape = np.arange(5000, dtype=np.uint64) % 60 + 1
    end_ns = np.full(5000, 10**10, np.uint64)
    probability = draw(1000, shape, end_ns)
    assert np.count_nonzero(probability) + lost() >= 5000
    assert np.count_nonzero(probability) <= 1001


def _covered(shape: U64, end_ns: U64, value: F64, mine: F64) -> tuple[float, float, float]:
    """Share of samples whose interval has the truth, mean error, and its standard error."""
    truth = float(value @ mine)
    inside, errors, with_interval = 0, [], 0
    for seed in range(REPEATS):
        probability = draw(10, shape, end_ns, seed=seed)
        drawn = np.flatnonzero(probability)
        group = np.zeros(len(drawn), np.int64)
        total = estimate(value[drawn] * mine[drawn], probability[drawn], group, 1)
        errors.append(total.total[0] / truth - 1)
        by_chance = np.count_nonzero(mine[drawn] * (probability[drawn] < 1))
        if by_chance < FEW:
            continue
        with_interval += 1
        inside += abs(total.total[0] - truth) <= total.half_width[0]
    assert with_interval > REPEATS / 2
    return inside / with_interval, float(np.mean(errors)), float(np.std(errors)) / REPEATS**0.5


def test_estimates_are_unbiased_and_intervals_cover() -> None:
    """Estimates of a user who sends 40 % of the queries of two shapes."""
    rng = np.random.default_rng(SEED)
    shape, end_ns = times([1.0, 4.0])
    value = rng.lognormal(0.0, 1.0, len(shape)) * np.where(shape == 1, 1.0, 0.3)
    mine = (rng.random(len(shape)) < 0.4).astype(np.float64)
    covered, error, of_error = _covered(shape, end_ns, value, mine)
    assert abs(error) <= 4 * of_error, "unbiased"
    assert LOW <= covered <= HIGH, covered
