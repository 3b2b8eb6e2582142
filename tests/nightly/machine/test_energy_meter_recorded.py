# SPDX-License-Identifier: Apache-2.0
"""`qjoule record --meter`: the program runs without rights; its joules get their own ledger."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from other_user import for_all_users
from qjoule.trace.reader import Trace
from qjoule_studies.servers.process import DatabaseServer
from tracing.postgres_client import postgres_client, query
from tracing.recording import attribute, recording

pytestmark = [pytest.mark.root, pytest.mark.server]

SECONDS = 6
#: Ten lines a second, with a clock that is an hour behind; run as root it would print other watts.
PLUG = """
import os, time
while True:
    print(f"{time.time() - 3600:.3f} {60 if os.getuid() else 7} W", flush=True)
    time.sleep(0.1)
"""


def test_a_wall_meter_beside_an_estimate(postgres: DatabaseServer, tmp_path: Path) -> None:
    script = Path(for_all_users()) / f"plug-{postgres.pid}.py"
    script.write_text(PLUG)
    script.chmod(0o644)
    directory = tmp_path / "wall.qjoule"
    options = ("--pid", str(postgres.pid), "--energy", "estimated:10,20,30,40")
    meter = ("--meter", f"{sys.executable} {script}")
    try:
        with (
            postgres_client(postgres.port) as client,
            recording(directory, *options, *meter),
        ):
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                client.exchange(query(b"SELECT count(*) FROM generate_series(1, 20000)"))
    finally:
        script.unlink()
    trace = Trace(directory)
    assert trace.meta.meter is not None
    assert trace.meta.meter.name == Path(sys.executable).name
    assert trace.rows("meter") > 5 * SECONDS
    assert "meter" not in trace.loss
    found = attribute(directory)
    wall_j = found["domains_j"]["wall"]["measured"]
    assert 60 * (SECONDS - 1) < wall_j < 60 * (SECONDS + 5)
    assert any("wall meter: its clock is -3600.0" in note for note in found["model"]["notes"])
