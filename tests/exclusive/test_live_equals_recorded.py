# SPDX-License-Identifier: Apache-2.0
"""Law 5 on a real server: `qjoule top` and `qjoule record` over the same statements, side by side.

Two tracers are attached at the same time, before the load begins and until after it has ended, so
both see every statement. Their counts must be equal to each other and to the server's.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from qjoule.engine.attribute import attribute
from qjoule.trace.reader import Trace
from qjoule_studies.servers.process import DatabaseServer
from tracing.cpu_time import tolerance
from tracing.live_top import live_top
from tracing.recording import at_once, recording

pytestmark = [pytest.mark.root, pytest.mark.server, pytest.mark.timeout(120)]
CPUS = os.cpu_count() or 1

#: Statement, its shape's beginning, and how often a client runs it.
LOAD = (
    ("select count(*) from law5.t where n > {n}", "select count(*) from law5.t", 150),
    ("select sum(n * n) from law5.t where id <> {n}", "select sum(n * n)", 100),
    ("update law5.t set n = n + 1 where id = {n}", "update law5.t set n = n + ?", 200),
    ("select {n} as law5", "select ? as law5", 500),
)
CLIENTS, SNAPSHOTS = 2, 4


def _client(server: DatabaseServer) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        for statement, _, times in LOAD:
            for number in range(times):
                cursor.execute(statement.format(n=number % 100 + 1))


def _replayed(path: Path) -> str:
    """A counter of 50 W for ten minutes. With one, `top` also sums idle tails and wake-ups."""
    readings = (f"{n * 20} 0 package {n * 1000}" for n in range(30_000))
    path.write_text("\n".join(["domain 0 package 1e-3 0 20", *readings, ""]))
    return f"replay:{path}"


@pytest.fixture(scope="module")
def live_and_recorded(
    mariadb: DatabaseServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[list[dict[str, Any]], Path]]:
    """The snapshots of `top` and the trace of `record`, both of the load."""
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute("create or replace database law5")
        cursor.execute("create table law5.t (id int primary key, n bigint) engine=innodb")
        cursor.executemany("insert into law5.t values (%s, %s)", [(n, n) for n in range(2000)])
    directory = tmp_path_factory.mktemp("law5")
    trace, energy = directory / "trace", _replayed(directory / "energy")
    with (
        live_top("--energy", energy, "--pid", str(mariadb.pid)) as top,
        recording(trace, "--pid", str(mariadb.pid), "--energy", "auto"),
    ):
        at_once(_client, [mariadb] * CLIENTS)
        # A quick machine needs fewer intervals than are looked at.
        top.until(lambda snapshots: _has_all(snapshots) and len(snapshots) >= SNAPSHOTS)
        snapshots = list(top.snapshots)
        top.process.send_signal(signal.SIGINT)
        assert top.process.wait(30) == 0, top.messages()
    yield snapshots, trace
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute("drop database law5")


def _has_all(snapshots: list[dict[str, Any]]) -> bool:
    """True once the view shows as many calls of the load as clients made."""
    calls: int = sum(
        row["calls"]
        for snapshot in snapshots
        for row in snapshot["interval"]["rows"]
        if any(row["shape"].startswith(shape) for _, shape, _ in LOAD)
    )
    return calls >= CLIENTS * sum(times for _, _, times in LOAD)


def _live_sums(snapshots: list[dict[str, Any]]) -> tuple[Counter[str], Counter[str]]:
    calls: Counter[str] = Counter()
    cpu_ns: Counter[str] = Counter()
    for snapshot in snapshots:
        for row in snapshot["interval"]["rows"]:
            calls[row["fingerprint"]] += row["calls"]
            cpu_ns[row["fingerprint"]] += row["cpu_ns"]
    return calls, cpu_ns


def test_calls_per_shape_are_equal_and_those_that_were_made(
    live_and_recorded: tuple[list[dict[str, Any]], Path],
) -> None:
    snapshots, trace = live_and_recorded
    live, _ = _live_sums(snapshots)
    recorded = {row.keys["fingerprint"]: row for row in attribute(Trace(trace)).rows}
    for _, shape, times in LOAD:
        (row,) = (row for row in recorded.values() if row.shape.startswith(shape))
        assert row.calls == CLIENTS * times
        assert live[row.keys["fingerprint"]] == row.calls, shape


def test_cpu_time_per_shape_agrees(live_and_recorded: tuple[list[dict[str, Any]], Path]) -> None:
    """Within 1 % and 2 us per call, on a machine that does nothing else.

    The programs of one tracer run inside the slices that the other measures: at every edge of a
    slice and at every hook of a query. That is a fraction of a microsecond per call, for one of the
    two.
    """
    snapshots, trace = live_and_recorded
    _, live_ns = _live_sums(snapshots)
    for row in attribute(Trace(trace)).rows:
        if any(row.shape.startswith(shape) for _, shape, _ in LOAD):
            difference_ns = abs(live_ns[row.keys["fingerprint"]] - row.cpu_ns)
            assert difference_ns <= tolerance(0.01) * row.cpu_ns + 2_000 * row.calls, row.shape


def test_every_snapshot_adds_up(live_and_recorded: tuple[list[dict[str, Any]], Path]) -> None:
    snapshots, _ = live_and_recorded
    assert len(snapshots) >= SNAPSHOTS
    for snapshot in snapshots:
        interval = snapshot["interval"]
        totals = {part: round(joules * 1e9) for part, joules in interval["totals_j"].items()}
        measured_nj = totals.pop("measured")
        assert measured_nj > 0
        assert sum(totals.values()) == measured_nj
        rows = [*interval["rows"], *interval["fixed"]]
        assert sum(round(row["energy_j"] * 1e9) for row in rows) == measured_nj
        cpu_ns = sum(row["cpu_ns"] for row in rows)
        duration_ns = round(interval["trace"]["duration_s"] * 1e9)
        assert cpu_ns == duration_ns * CPUS
    # The sums do not rely on cuts. A CPU that the host took away for longer than a window claims
    # that time in the next one: this may happen to an interval, never to most of them.
    assert median(_cut_share(snapshot["interval"]) for snapshot in snapshots) <= 0.002


def _cut_share(interval: dict[str, Any]) -> float:
    """The share of the CPUs' time that owners claimed beyond what the CPUs have."""
    trace = interval["trace"]
    cut_ns: int = trace["anomalies"].get("overlap_ns", 0)
    return cut_ns * 1e-9 / (float(trace["duration_s"]) * CPUS)
