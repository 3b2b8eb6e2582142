# SPDX-License-Identifier: Apache-2.0
"""Drawn queries: from the stream to the store, and what is estimated from the store."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import fake_tracer
from fake_tracer import BEGIN_NS, MS
from metrics_pages import META, fingerprint_of, opening, query, window
from qjoule.agent import store as agent_store
from qjoule.agent.minute import Minute, sample_rows
from qjoule.agent.rollup_layout import SAMPLES, Part
from qjoule.agent.rollup_schema import SAMPLE_ROWS
from qjoule.agent.store import Retention, Store
from qjoule.contract import SAMPLE, Block, QueryFlag
from qjoule.engine.live_groups import PER_SERVER
from qjoule.live.options import LiveOptions
from qjoule.live.source import StreamSource
from qjoule.metrics.interval import interval_of
from qjoule.snapshots import Controls, Snapshot
from qjoule.stream.blocks import Stream, encode_block
from qjoule_fleet.commands import samples as command
from qjoule_fleet.files import Refused, dataset
from qjoule_fleet.samples import KEYS, by_keys, drawn_in
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
    """Of a stream of one statement with these drawn queries."""
    windows = [window(n, [query(1, 10_000, calls=10)], 1000 * (n + 1)) for n in range(4)]
    windows[0] += b"".join(encode_block(Block.SAMPLE, one) for one in records)
    content = opening((1,)) + b"".join(windows) + fake_tracer.end(BEGIN_NS + 400 * MS)
    options = LiveOptions(groups=(PER_SERVER,), samples=True)
    source = StreamSource(Stream(io.BytesIO(content)), fake_tracer.context(META), options)
    (whole,) = source.snapshots(Controls(10.0, totals=False))
    return whole


def test_a_query_has_its_share_of_its_statements_energy() -> None:
    assert snapshot().sampled is None
    live = snapshot(drawn(8, one_in=5))
    assert live.sampled is not None
    interval = interval_of(live.interval)
    rows = sample_rows(live.sampled, interval, START_S + 10.0)
    (shape,) = (one for one in interval.queries if one.fingerprint == fingerprint_of(1))
    amounts = interval.queries[shape].amounts
    assert {row["fingerprint"] for row in rows} == {shape.fingerprint} and len(rows) == 8
    assert all(row["probability"] == pytest.approx(1 / 5) for row in rows)
    for row in rows:
        assert row["energy_nj"] == round(amounts.energy_nj * CPU_NS / amounts.cpu_ns)
        assert row["error_nj"] > 0 and row["outcome"] == "ok" and row["rows"] is None
    ago_s = [START_S + 10.0 - row["time"] / 1e6 for row in rows]
    assert ago_s[0] == pytest.approx(0.399, abs=1e-5) and ago_s == sorted(ago_s, reverse=True)


def row(at_s: float, **more: object) -> dict[str, object]:
    values = {"calls": 1, "latency_ns": 5, "cpu_ns": 10**6, "energy_nj": 10**9, "error_nj": 1e8}
    names = {"server": "db:1", "fingerprint": "a" * 16, "user": "app", "client": "192.0.2.7"}
    return {"time": round(at_s * 1e6), "probability": 0.5, **values, **names, **more}


def minute(*rows: dict[str, object], start_s: int = START_S) -> Minute:
    return Minute(start_s, 60.0, "measured", "separate", samples=list(rows))


def written(path: Path, *minutes: Minute) -> Path:
    store = Store(path, "db1", Retention(30, 100))
    for one in minutes:
        assert store.write(one, "package")
    store.close()
    return path


def test_estimates_from_the_store(tmp_path: Path) -> None:
    ours = [row(START_S + n) for n in range(30)]
    theirs = [row(START_S + 60 + n, user=None, probability=1.0) for n in range(3)]
    written(tmp_path, minute(*ours), minute(*theirs, start_s=START_S + 60))
    refused: list[Refused] = []
    found = by_keys(drawn_in(dataset(str(tmp_path)), HOUR, refused), ["user"]).to_pylist()
    assert not refused and [one["user"] for one in found] == ["app", "(unknown)"]
    app, other = found
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
    store.close()
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
    assert len(refused) == 3 and "probability" in " ".join(one.reason for one in refused)


def ask(*words: str) -> str:
    found = CliRunner().invoke(command.command, words, catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.stdout


TIMES = ("--from", "2026-11-18T00:00Z", "--to", "2026-11-20T00:00Z")


def test_the_command(tmp_path: Path) -> None:
    assert set(command.KEYS) == set(KEYS)
    written(tmp_path, minute(*(row(START_S + n) for n in range(30))))
    found = json.loads(ask(str(tmp_path), "--by", "user,client", "--json", *TIMES))
    assert [(one["user"], one["client"], one["calls"]) for one in found] == [
        ("app", "192.0.2.7", 60)
    ]
    (line,) = csv.DictReader(io.StringIO(ask(str(tmp_path), "--format", "csv", *TIMES)))
    assert line["user"] == "app"
    table = ask(str(tmp_path), "--by", "user,client", *TIMES)
    assert "joules: measured; power at rest: separate" in table
    assert "60 ± " in table and "rough" not in table
