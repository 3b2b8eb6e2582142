# SPDX-License-Identifier: Apache-2.0
"""`qjoule record --meter`: the program runs without rights; its joules get their own ledger.
Also: when the live tracer reads the energy of a window.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pytest

from other_user import for_all_users
from qjoule.contract import Block, Mode
from qjoule.trace.reader import Trace
from qjoule_studies.servers.process import DatabaseServer
from tracing.animated_rapl import animated_rapl
from tracing.postgres_client import postgres_client, query
from tracing.recording import attribute, recording
from tracing.tracer import tracing

pytestmark = pytest.mark.root

SECONDS = 6
#: Ten lines a second, with a clock that is an hour behind; run as root it would print other watts.
PLUG = """
import os, time
while True:
    print(f"{time.time() - 3600:.3f} {60 if os.getuid() else 7} W", flush=True)
    time.sleep(0.1)
"""


@pytest.mark.server
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
    result = attribute(directory)
    wall_j = result["domains_j"]["wall"]["measured"]
    assert 60 * (SECONDS - 1) < wall_j < 60 * (SECONDS + 5)
    assert any("wall meter: its clock is -3600.0" in note for note in result["model"]["notes"])


# --------------------------------------------------------------------------------------------------
#
# Live view: when the tracer ends a window of sums, and when it reads the energy for it.

WINDOW_MS = 100


def test_measured_energy_is_read_half_a_period_after_the_sums_ended() -> None:
    with animated_rapl() as rapl:
        options = ("--energy", rapl.option, "--window-ms", str(WINDOW_MS), "--only-running")
        with tracing(Mode.LIVE, *options) as session:
            time.sleep(1.5)
            assert session.finish() == ""
            ends = np.unique(session.records(Block.AGGREGATE)["t1_ns"]).astype(np.int64)
            readings = session.records(Block.ENERGY)
    times = np.unique(readings["t_ns"][readings["domain"] == 0]).astype(np.int64)
    assert len(ends) == len(times) >= 5, "something ran in every window, if only the tracer"
    late_ns = times - ends
    assert (late_ns[:-1] >= 500_000).all()
    assert late_ns.min() == late_ns[-1] == 0, "the stream's last window ends with its reading"
