# SPDX-License-Identifier: Apache-2.0
"""The law of `qjoule import perf`: a run recorded by both BPF and perf gives the same results.

Queries are counted alike, exactly. CPU time of a statement agrees within 3 % plus the possible cost
of a context switch per call. Joules agree within the two intervals. Perf is run as
`--print-commands` says.
"""

from __future__ import annotations

import shutil
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from qjoule_studies.servers.process import DatabaseServer
from tracing.cpu_time import tolerance
from tracing.perf_recording import perf_recording
from tracing.recording import Recorder, Run, attribute, qjoule

pytestmark = [
    pytest.mark.root,
    pytest.mark.server,
    pytest.mark.timeout(180),
    pytest.mark.skipif(shutil.which("perf") is None, reason="perf is not installed (linux-perf)"),
]

ENERGY, FULL_W = "estimated:5,10,20,40", 40
#: For each call: a switch to its thread and one away, and the entry of both tracers' probes, which
#: one tracer counts before the query and the other within it.
EACH_CALL_NS = 30_000
SETTLED_S = 0.3  #: a server may still have to return from a statement that it has answered


@dataclass(frozen=True)
class Both:
    """One run, recorded twice; `attributed` by recorder."""

    bpf: Run
    perf: Run
    attributed: dict[str, dict[str, Any]]

    def rows(self, who: str) -> dict[str, dict[str, Any]]:
        """By shape, those with calls."""
        rows = self.attributed[who]["rows"]
        return {row["shape"]: row for row in rows if row.get("calls")}


def _record_both(directory: Path, server: DatabaseServer, work: Any) -> Both:
    bpf, perf = directory / "bpf", directory / "perf"
    # The perf recording has CPU time alone, so that is what both runs are weighed by.
    options = ("--attach", "symbol", "--no-counters", "--ring-mb", "64", "--energy", ENERGY)
    recorder = Recorder(bpf, "--pid", str(server.pid), *options)
    try:
        recorder.attached()
        with perf_recording(directory, server.pid) as recorded:
            work()
            time.sleep(SETTLED_S)
        assert recorder.stop() == 0, recorder.words
    finally:
        recorder.end()
    imported = qjoule(
        *("import", "perf", str(recorded.data), "-o", str(perf), "--energy", ENERGY),
        *recorded.options(),
    )
    assert imported.returncode == 0, imported.stderr
    attributed = {"bpf": attribute(bpf), "perf": attribute(perf)}
    return Both(Run(bpf), Run(perf), attributed)


@pytest.fixture(scope="module")
def mysql_run(mariadb: DatabaseServer, tmp_path_factory: pytest.TempPathFactory) -> Both:
    def work() -> None:
        with (
            closing(mariadb.connect(ssl_disabled=True)) as connection,
            connection.cursor() as cursor,
        ):
            for value in range(300):
                cursor.execute(f"select {value} as m_short, 'it''s \n two lines' as text")
                cursor.execute(f"select benchmark({20_000 + value}, sha2('x', 256)) as m_long")
            cursor.execute("select 1 as m_quoted, 'e' as `u`")

    return _record_both(tmp_path_factory.mktemp("import-mysql"), mariadb, work)


@pytest.fixture(scope="module")
def postgres_run(postgres: DatabaseServer, tmp_path_factory: pytest.TempPathFactory) -> Both:
    def work() -> None:
        with closing(postgres.connect()) as connection, connection.cursor() as cursor:
            for value in range(200):
                cursor.execute("select %s as m_short", (value,))
                cursor.execute(
                    "select count(*) as m_long from generate_series(1, 40000) g where g %% 7 = %s",
                    (value % 7,),
                )

    return _record_both(tmp_path_factory.mktemp("import-pg"), postgres, work)


@pytest.fixture(params=["mysql_run", "postgres_run"])
def both(request: pytest.FixtureRequest) -> Both:
    run: Both = request.getfixturevalue(request.param)
    return run


def _marked(counts: Any) -> dict[str, int]:
    return {text: calls for text, calls in counts.items() if "m_" in text}


def test_queries_are_counted_alike(both: Both) -> None:
    by_bpf, by_perf = _marked(both.bpf.executions()), _marked(both.perf.executions())
    assert by_bpf == by_perf
    assert len(by_perf) >= 2 and min(by_perf.values()) >= 1
    assert set(both.perf.queries["attach_mode"].dropna()) == {"symbol"}


def test_cpu_time_of_each_statement_agrees(both: Both) -> None:
    by_bpf, by_perf = both.rows("bpf"), both.rows("perf")
    for shape, row in by_perf.items():
        if "m_" not in shape:
            continue
        other = by_bpf[shape]
        allowed_ns = tolerance() * other["cpu_ns"] + EACH_CALL_NS * row["calls"]
        assert row["cpu_ns"] == pytest.approx(other["cpu_ns"], abs=allowed_ns), shape
    longest = [shape for shape in by_perf if "m_long" in shape]
    assert by_perf[longest[0]]["cpu_ns"] > 10 * EACH_CALL_NS * by_perf[longest[0]]["calls"]
