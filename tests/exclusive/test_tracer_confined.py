# SPDX-License-Identifier: Apache-2.0
"""`qjoule-tracer` on real servers: it ends with the root part, and has no memory errors."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from qjoule.contract import Block, Mode
from qjoule.session.targets import plan_tracing
from servers.process import DatabaseServer
from tracing.mysql_story import prepare_server, sysbench
from tracing.root_part import ROOT_PART
from tracing.tracer import STOP_TIMEOUT_S, TRACER, Session, tracing

pytestmark = [pytest.mark.root, pytest.mark.server]

_BUILD = Path(__file__).parents[2] / "build"
SANITIZED, SANITIZED_ROOT = _BUILD / "qjoule-tracer-asan", _BUILD / "qjoule-root-asan"


@contextmanager
def session(
    server: DatabaseServer, mode: Mode, *options: str, tracer: Path = TRACER
) -> Iterator[Session]:
    energy = ("--energy", "estimated:5,10,20,40", "--only-running")
    plan = plan_tracing([server.pid])
    root_program = SANITIZED_ROOT if tracer == SANITIZED else ROOT_PART
    with tracing(
        mode, *energy, *options, plan=plan, tracer=tracer, root_program=root_program
    ) as running:
        yield running


def load(server: DatabaseServer) -> None:
    prepare_server(server)
    sysbench(server, "oltp_read_only", "run", "--events=300")


def test_it_ends_when_the_root_part_does(mariadb: DatabaseServer) -> None:
    """When the root part is killed, its probes are removed: there is nothing more to record."""
    with session(mariadb, Mode.RECORD) as running:
        load(mariadb)
        running.root.process.kill()
        assert running.process.wait(STOP_TIMEOUT_S) == 1
        assert running.process.stderr is not None
        words = running.process.stderr.read().decode()
    assert words == (
        "qjoule-tracer: stopped: the root part (qjoule-root) has ended, and nothing is attached "
        "any more\n"
    )
    assert running.records(Block.END)["reason"].tolist() == [errno.ECONNRESET]


@pytest.mark.skipif(not SANITIZED.exists(), reason="build/qjoule-tracer-asan is not built: make")
@pytest.mark.parametrize(("kind", "mode"), [("mariadb", Mode.RECORD), ("postgres", Mode.LIVE)])
def test_no_memory_errors_under_load(request: pytest.FixtureRequest, kind: str, mode: Mode) -> None:
    server: DatabaseServer = request.getfixturevalue(kind)
    with session(server, mode, "--counter", "cycles=1:0", tracer=SANITIZED) as running:
        if kind == "mariadb":
            load(server)
        else:
            with server.connect() as connection:
                for number in range(500):
                    connection.execute(f"select {number} as c{number}")
        words = running.finish()
    assert words == ""
    assert running.frames[-1].kind is Block.END
    assert running.root.process.returncode == 0, "the root part had one"
