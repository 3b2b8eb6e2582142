# SPDX-License-Identifier: Apache-2.0
"""`qjoule-tracer` on real servers has no memory errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from qjoule.contract import Block, Mode
from qjoule.session.targets import plan_tracing
from qjoule_studies.servers.process import DatabaseServer
from tracing.mysql_story import prepare_server, sysbench
from tracing.tracer import tracing

pytestmark = [pytest.mark.root, pytest.mark.server]

_BUILD = Path(__file__).parents[2] / "build"
SANITIZED, SANITIZED_ROOT = _BUILD / "qjoule-tracer-asan", _BUILD / "qjoule-root-asan"


@pytest.mark.skipif(not SANITIZED.exists(), reason="build/qjoule-tracer-asan is not built: make")
@pytest.mark.parametrize(("kind", "mode"), [("mariadb", Mode.RECORD), ("postgres", Mode.LIVE)])
def test_no_memory_errors_under_load(request: pytest.FixtureRequest, kind: str, mode: Mode) -> None:
    server: DatabaseServer = request.getfixturevalue(kind)
    options = ("--energy", "estimated:5,10,20,40", "--only-running", "--counter", "cycles=1:0")
    plan = plan_tracing([server.pid])
    with tracing(
        mode, *options, plan=plan, tracer=SANITIZED, root_program=SANITIZED_ROOT
    ) as running:
        if kind == "mariadb":
            prepare_server(server)
            sysbench(server, "oltp_read_only", "run", "--events=300")
        else:
            with server.connect() as connection:
                for number in range(500):
                    connection.execute(f"select {number} as c{number}")
        words = running.finish()
    assert words == ""
    assert running.frames[-1].kind is Block.END
    assert running.root.process.returncode == 0, "the root part had one"
