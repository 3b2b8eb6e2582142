# SPDX-License-Identifier: Apache-2.0
"""The workload `load` on real servers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from qjoule.errors import QjouleError
from qjoule.studies.workload import Target, Value
from qjoule.studies.workloads.load import Load
from servers.postgres import postgres_server
from servers.process import DatabaseServer

pytestmark = [pytest.mark.beside, pytest.mark.server]
SHORT: dict[str, Value] = {
    **Load.defaults,
    "rows": 1_000,
    "seconds": 1.0,
    "peak_seconds": 0.3,
    "connections": 4,
    "processes": 2,
}
SERVERS = ["postgres", "mariadb", "redis"]


def target_of(server: DatabaseServer) -> Target:
    return Target(server.name, server.pid, port=server.port, socket=str(server.socket))


@pytest.fixture(params=SERVERS)
def target(request: pytest.FixtureRequest) -> Target:
    return target_of(request.getfixturevalue(request.param))


def test_a_level_of_the_measured_peak(target: Target) -> None:
    options = {**SHORT, "operation": "mix", "level": 20}
    Load().prepare(target, options)
    first = Load().run(target, options)
    Load().prepare(target, options)
    second = Load().run(target, {**options, "seed": 2})
    for found in (first, second):
        assert found.errors == 0
        assert set(found.commands) == {"read", "update", "range", "all"}
        assert found.commands["all"].operations == found.operations
        assert found.wall_s >= 1.0
    said = [
        [note for note in found.notes if "peak was measured at" in note]
        for found in (first, second)
    ]
    assert said[0] == said[1] != []  # measured once
    peak = float(said[0][0].split(": ")[1].split("/s")[0].replace(",", ""))
    assert first.operations == pytest.approx(0.2 * peak, rel=0.2)


def test_a_peak_that_is_given_and_one_that_was_not_measured(postgres: DatabaseServer) -> None:
    with pytest.raises(QjouleError, match="prepare the workload first"):
        Load().run(target_of(postgres), {**SHORT, "peak_name": "other"})
    options = {**SHORT, "peak_per_s": 400, "level": 50, "operation": "update"}
    options["arrival"] = "uniform"
    Load().prepare(target_of(postgres), options)
    with postgres.connect(dbname="qjoule") as connection:
        counters = "SELECT sum(counter) FROM qjoule_load_1000"
        before = connection.execute(counters).fetchone()[0]
        found = Load().run(target_of(postgres), options)
        assert found.operations == 200
        assert connection.execute(counters).fetchone()[0] - before == 200


def test_no_load_outlives_who_started_it(postgres: DatabaseServer) -> None:
    target = target_of(postgres)
    options = {**SHORT, "peak_per_s": 100, "level": 100, "seconds": 60.0}
    Load().prepare(target, options)
    program = (
        "import sys; from qjoule.studies.workload import Target; "
        "from qjoule.studies.workloads.load import Load; "
        f"Load().run({target!r}, {options!r})"
    )
    counted = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'qjoule-bench'"
    with postgres.connect() as connection:

        def connected() -> int:
            return int(connection.execute(counted).fetchone()[0])

        client = subprocess.Popen([sys.executable, "-c", program])
        try:
            assert eventually(lambda: connected() >= 4)
        finally:
            client.kill()
            client.wait()
        assert eventually(lambda: connected() == 0)


def eventually(said: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 20
    while not said() and time.monotonic() < deadline:
        time.sleep(0.05)
    return said()


def test_a_server_that_dies() -> None:
    with postgres_server() as server:
        options = {**SHORT, "peak_per_s": 100, "level": 100, "seconds": 20.0}
        Load().prepare(target_of(server), options)
        killing = threading.Timer(1.5, os.kill, [server.pid, signal.SIGQUIT])
        begin = time.monotonic()
        killing.start()
        with pytest.raises(QjouleError, match="postgres"):
            Load().run(target_of(server), options)
        assert time.monotonic() - begin < 15
        killing.join()
