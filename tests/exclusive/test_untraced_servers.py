# SPDX-License-Identifier: Apache-2.0
"""A server that runs untraced, or exits, is named in every output: nothing goes dark silently."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tracing.own_servers import own_program, recorded, serving, stranger, until_meta_has, work
from tracing.recording import attribute, qjoule

pytestmark = [pytest.mark.root, pytest.mark.server]

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
    words = recorder.said
    assert "exited at" in words
    assert f"redis-server (process {pid}) ran untraced since" in words
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
