"""`qjoule record --counters`, and what `qjoule characterise` makes of it: page faults of a query.

They are a software event, which any machine has; this one may lack all others.
"""

from __future__ import annotations

import json
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from root.support.postgres_client import postgres_client, query
from root.support.recording import QJOULE, recording
from servers.process import DatabaseServer

pytestmark = [pytest.mark.root, pytest.mark.server]

ABSENT = "rffffffffffff"  #: a raw event that no CPU has
#: Sorts in memory that the backend has not touched before: a fault for each of its pages.
SORTS = "SELECT count(*) FROM (SELECT repeat('x', 500) || g AS t FROM generate_series(1, 40000) g ORDER BY t OFFSET 1) s"


def test_page_faults_by_shape(postgres: DatabaseServer, tmp_path: Path) -> None:
    directory = tmp_path / "faults.qjoule"
    options = (f"--pid={postgres.pid}", "--counters", f"page-faults,page-faults:k,{ABSENT}")
    with recording(directory, *options) as recorder:
        with closing(postgres_client(postgres)) as client:
            client.send(query("SET work_mem = '64MB'"))
            client.send(query(SORTS))
            for i in range(50):
                client.send(query(f"SELECT {i} + 1"))
    assert f"qjoule: not counted: {ABSENT} (" in recorder.words
    meta = json.loads((directory / "meta.json").read_text())
    assert meta["more_counters"] == ["page-faults", "page-faults:k"]
    shown = subprocess.run(
        [QJOULE, "characterise", str(directory), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    rows = {row["shape"]: row for row in json.loads(shown.stdout)["rows"]}
