# SPDX-License-Identifier: Apache-2.0
"""`qjoule learn` on a real MariaDB: what it repeats, what it cannot do, and what it records."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pymysql
import pytest

from qjoule.servers import registry
from qjoule.servers.decoding import fingerprint
from qjoule.trace.reader import Trace
from qjoule_studies.servers.mysql import connect_mysql
from qjoule_studies.servers.process import DatabaseServer
from qjoule_studies.workload import Target
from tracing.animated_rapl import animated_rapl
from tracing.recording import Recorder, qjoule

pytestmark = [pytest.mark.root, pytest.mark.server]
COUNT = "SELECT count(*) FROM numbers WHERE n % 7 = 3"
SORT = "SELECT n, sha2(n, 256) FROM numbers ORDER BY 2 LIMIT 5"
PLAIN = "SELECT max(n) FROM numbers"
STATEMENTS = (COUNT, SORT, PLAIN)


def fingerprint_of(sql: str) -> str:
    return fingerprint(sql.encode(), registry.dialect("mysql")).fingerprint


@pytest.fixture(scope="module")
def target(mariadb: DatabaseServer) -> Iterator[Target]:
    with closing(connect_mysql(mariadb, True, {})) as client, client.cursor() as cursor:
        cursor.execute("CREATE DATABASE IF NOT EXISTS learn")
        cursor.execute("USE learn")
        cursor.execute("CREATE OR REPLACE TABLE numbers (n INT PRIMARY KEY)")
        cursor.execute("INSERT INTO numbers SELECT seq FROM seq_1_to_5000")
        yield Target(
            "mariadb", mariadb.pid, "127.0.0.1", mariadb.port, user="root", database="learn"
        )
        cursor.execute("DROP DATABASE learn")


def rows(target: Target) -> int:
    client = pymysql.connect(host=target.host, port=target.port, user="root")
    with closing(client), client.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM learn.numbers")
        row: Any = cursor.fetchone()
    return int(row[0])


def record(trace: Path, target: Target, energy: str) -> None:
    """Ordinary work: all statements in turn, and one that writes."""
    recorder = Recorder(trace, "--pid", str(target.pid), "--energy", energy)
    recorder.attached()
    end_s = time.monotonic() + 4.0
    client = pymysql.connect(host=target.host, port=target.port, user="root", database="learn")
    with closing(client), client.cursor() as cursor:
        while time.monotonic() < end_s:
            for sql in (*STATEMENTS, "DO 1"):
                cursor.execute(sql)
                cursor.fetchall()
    recorder.stop()


def test_it_learns_from_a_trace(target: Target, tmp_path: Path) -> None:
    file, trace, out = (tmp_path / name for name in ("s.sql", "shop.qjoule", "learned.qjoule"))
    file.write_text(f"{COUNT}\n{SORT}\nDELETE FROM numbers\n")
    before = rows(target)
    with animated_rapl(idle_w=30.0, shared_w=12.0, cpu_w=9.0) as rapl:
        record(trace, target, rapl.option)
        done = qjoule(
            *("learn", str(target.pid), "--shapes", str(trace), "--energy", rapl.option),
            *("--port", str(target.port), "--user", "root", "--database", "learn"),
            *("--waiting", "9999", "--more-statements", "9900"),
            *("--statements", str(file), "-o", str(out), "--seconds", "12", "--yes"),
        )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    for sql in STATEMENTS:
        assert fingerprint_of(sql) in done.stdout
    assert "afterwards to about ±" in done.stdout
    assert "the trace has no such statement: DELETE FROM numbers" in done.stderr
    assert rows(target) == before
    calls = Trace(out).pandas("queries")["fingerprint"].value_counts()
    assert all(calls[fingerprint_of(sql)] >= 5 for sql in STATEMENTS)
    texts = "".join(str(text) for text in Trace(out).pandas("shapes")["text"])
    assert "% 7" not in texts, "literals stay home"
