# SPDX-License-Identifier: Apache-2.0
"""`qjoule record --counters`, and what `qjoule characterise` makes of it: page faults of a query.

They are a software event, which any machine has; this machine may have no other.
"""

from __future__ import annotations

import json
from pathlib import Path

import psutil
import pytest

from qjoule.lazy_import import pc
from qjoule.trace.reader import Trace
from qjoule_studies.servers.process import DatabaseServer
from tracing.postgres_client import postgres_client, query
from tracing.recording import qjoule, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

#: A raw event that no CPU has. Kernels without hardware counters refuse it; some drivers mask what
#: they do not know, and count nothing.
ABSENT = "rffffffffffff"
#: Sorts in memory that the backend has not touched before: one fault for each of its pages.
SORT = b"SELECT count(*) FROM (SELECT repeat('x', 500) || g AS t FROM generate_series(1, 30000) g"
SORT += b" ORDER BY t OFFSET 1) AS sorted"


def _faults(pid: int) -> int:
    """Page faults so far, minor and major: proc(5), /proc/PID/stat."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[7]) + int(fields[9])


def test_page_faults_by_shape(postgres: DatabaseServer, tmp_path: Path) -> None:
    directory = tmp_path / "faults.qjoule"
    options = (f"--pid={postgres.pid}", "--counters", f"page-faults,page-faults:k,{ABSENT}")
    with (
        postgres_client(postgres.port) as client,
        recording(directory, *options) as recorder,
    ):
        backends = [
            child
            for child in psutil.Process(postgres.pid).children()
            if any("[local]" in part or "127.0.0.1" in part for part in child.cmdline())
        ]
        pid = max(backends, key=psutil.Process.create_time).pid
        client.exchange(query(b"SET work_mem = '64MB'"))
        before = _faults(pid)
        client.exchange(query(SORT))
        faults = _faults(pid) - before
        client.exchange(query(b"SELECT 1"))
        refused = f"qjoule: not counted: {ABSENT} (" in recorder.words
    trace = Trace(directory)
    accepted = () if refused else (ABSENT,)
    assert trace.meta.more_counters == ("page-faults", "page-faults:k", *accepted)
    assert refused or trace.meta.counters, "who refuses no raw event has hardware counters"
    (sort,) = [
        row["query"]
        for row in trace.table("queries").select(["query", "statement_bytes"]).to_pylist()
        if row["statement_bytes"] == len(SORT)
    ]
    segments = trace.table("segments")
    mine = segments.filter(pc.equal(segments.column("query"), sort)).to_pylist()
    told, in_kernel = (sum(segment["more"][i] for segment in mine) for i in (0, 1))
    assert faults > 1000
    assert told == pytest.approx(faults, rel=0.05)
    assert in_kernel < told
    assert all(segment["more_counted"][:2] == [1.0, 1.0] for segment in mine)

    shown = qjoule("characterise", str(directory), "--json")
    assert shown.returncode == 0, shown.stderr
    rows = json.loads(shown.stdout)["rows"]
    by_time = trace.meta.counters.count("instructions") == 0
    name = "page-faults_per_s" if by_time else "page-faults_pki"
    (row,) = [row for row in rows if "generate_series" in row["shape"]]
    assert row["metrics"][name]["value"] > 0
    if by_time:
        told_again = row["metrics"][name]["value"] * row["cpu_ns"] / 1e9
        assert told_again == pytest.approx(told)
