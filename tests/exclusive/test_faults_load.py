# SPDX-License-Identifier: Apache-2.0
"""Overload, and servers that come, go or run untraced: losses are reported, the rest is right."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from qjoule_studies.servers.mysql import mariadb_server
from qjoule_studies.servers.process import DatabaseServer
from tracing.mysql_client import mysql_client
from tracing.mysql_story import marker_counts, prepare_server, sysbench
from tracing.own_servers import own_program, recorded, serving, stranger, until_meta_has, work
from tracing.recording import Run, attribute, qjoule, recording

pytestmark = [pytest.mark.root, pytest.mark.server]
ENERGY = ("--energy", "estimated:5,10,20,40")


def relative_width(document: dict[str, Any]) -> float:
    """Width of the interval of all queries' energy, relative to that energy."""
    rows = [row for row in document["rows"] if row["energy_j"]]
    energy = sum(row["energy_j"] for row in rows)
    return float(sum(row["energy_j_ci95"][1] - row["energy_j_ci95"][0] for row in rows) / energy)


def adds_up(document: dict[str, Any]) -> None:
    totals = dict(document["totals_j"])
    measured = totals.pop("measured")
    assert sum(totals.values()) == pytest.approx(measured, abs=1e-8)


def test_a_tracer_that_stalls(mariadb: DatabaseServer, tmp_path: Path) -> None:
    """A reader that stalls loses nothing: see test_capture.py."""
    prepare_server(mariadb)
    for name, ring_mb in (("calm", "64"), ("stalled", "1")):
        options = ("--pid", str(mariadb.pid), "--ring-mb", ring_mb, *ENERGY)
        with recording(tmp_path / name, *options) as recorder:
            if name == "stalled":
                os.kill(recorder.tracer_pid, signal.SIGSTOP)
            sysbench(mariadb, "oltp_point_select", "run", "--events=60000")
            if name == "stalled":
                os.kill(recorder.tracer_pid, signal.SIGCONT)
            sysbench(mariadb, "oltp_point_select", "run", "--events=5000")
    calm, stalled = (attribute(tmp_path / name) for name in ("calm", "stalled"))
    assert not {"segment", "query"} & Run(tmp_path / "calm").loss.keys()
    loss = Run(tmp_path / "stalled").loss
    assert loss["segment"] > 0
    assert loss["query"] > 0
    assert Run(tmp_path / "stalled").trace.lost_cpu_ns > 0
    assert str(loss["query"]) in str(stalled["trace"]["loss"])
    assert (
        f"{loss['query']:,} query records" in qjoule("attribute", str(tmp_path / "stalled")).stdout
    )
    for document in (calm, stalled):
        adds_up(document)
    assert relative_width(stalled) > relative_width(calm)


def test_servers_that_die_restart_and_appear(tmp_path: Path) -> None:
    with mariadb_server() as server, recording(tmp_path / "t"):
        for turn, end in enumerate((server.kill, server.stop, None)):
            with mysql_client(server.socket) as client:
                for _ in range(100):
                    client.query(b"select 1 as m_turn_%d" % turn)
            if end:
                end()
                server.start()
        with mariadb_server() as late, mysql_client(late.socket) as client:
            for _ in range(50):
                client.query(b"select 1 as m_late")
    counts = marker_counts(Run(tmp_path / "t").queries)
    sent = {"m_turn_0": 100, "m_turn_1": 100, "m_turn_2": 100, "m_late": 50}
    assert {marker: counts[marker] for marker in sent} == sent  # other servers may be traced too


# ---- a server that runs untraced, or exits, is named in every output -----------------------------

COMMANDS = 4000


def test_a_server_that_is_not_followed_is_told_everywhere(tmp_path: Path) -> None:
    trace, program = tmp_path / "trace", own_program(tmp_path)
    with ExitStack() as ending:
        with serving(program, tmp_path / "a") as server:
            energy = ("--energy", "estimated:5,15,20,30")
            recorder = ending.enter_context(recorded(trace, server.pid, options=energy))
            work(server, "key", COMMANDS)
        with serving(stranger(program), tmp_path / "b") as server:
            pid = server.pid
            work(server, "key", COMMANDS)
            until_meta_has(trace, "none of the chosen")
    messages = recorder.messages
    assert "exited at" in messages
    assert f"redis-server (process {pid}) ran untraced since" in messages
    document = attribute(trace)
    changes = document["trace"]["changes"]
    (exited,) = (change for change in changes if change["what"] == "exited")
    assert exited["since"] and not exited["until"]
    (hidden,) = (change for change in changes if change["pid"] == pid)
    assert (hidden["what"], hidden["why"]) == ("untraced", "it is none of the chosen servers")
    assert hidden["until"]
    assert hidden["cpu_ns"] > COMMANDS * 1000 and hidden["energy_j"] > 0
    (row,) = [row for row in document["fixed"] if row.get("process") == hidden["process"]]
    assert row["energy_j"] == pytest.approx(hidden["energy_j"])
    table = qjoule("attribute", str(trace)).stdout
    assert "BUT" in table and f"redis-server (process {pid}) ran untraced" in " ".join(
        table.split()
    )
    csv = qjoule("attribute", str(trace), "--format", "csv").stdout
    assert f"redis-server (process {pid})" in csv
    page = tmp_path / "report.html"
    assert qjoule("report", str(trace), "-o", str(page)).returncode == 0
    assert f"redis-server (process {pid}) ran untraced" in page.read_text()
