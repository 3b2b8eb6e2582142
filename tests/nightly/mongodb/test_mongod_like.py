# SPDX-License-Identifier: Apache-2.0
"""What only the stand-in for mongod can do on request: work for a set time, query itself,
exhaust.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest
from pymongo import WriteConcern

from servers.mongodb import VERSIONS, mongod_stand_in
from servers.process import DatabaseServer, Unavailable
from tracing.at_once import at_once
from tracing.mongodb_client import Client, clients
from tracing.recording import Run, recording
from tracing.tolerance import near_kernels

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

RUNGS = ("socket", "symbol")
CLIENTS = 8
#: CPU time of one request, by collection.
WORK_US = {"light": 4000, "heavy": 8000}
TIMES = 10


@pytest.fixture(scope="module")
def mongod(no_server_is_left: None) -> Iterator[DatabaseServer]:  # noqa: ARG001
    try:
        with mongod_stand_in() as server:
            yield server
    except Unavailable as reason:
        pytest.skip(str(reason))


def status(client: Client) -> dict[str, dict[str, int]]:
    return client.ask({"serverStatus": 1})


@pytest.mark.parametrize("rung", RUNGS)
def test_counts_and_cpu_time_are_the_servers_own(
    mongod: DatabaseServer, rung: str, tmp_path: Path
) -> None:
    """Many clients at once on few CPUs: a request is preempted and continues."""

    def work(client: Client) -> None:
        for _ in range(TIMES):
            for name, cpu_us in WORK_US.items():
                client.ask({"find": name, "filter": {"a": 1}, "work_us": cpu_us})

    with Client(mongod) as referee, clients(mongod, CLIENTS) as workers:
        before = status(referee)
        with recording(tmp_path / "t", "--pid", str(mongod.pid), "--rung", rung):
            at_once(work, workers)
        after = status(referee)
    run = Run(tmp_path / "t")
    segments = run.trace.pandas("segments")
    cpu_ns = (segments["t1_ns"] - segments["t0_ns"]).groupby(segments["query"]).sum()
    for name in WORK_US:
        mine = run.having(f"shop.{name} find")
        said = {
            key: after[key][f"find {name}"] - before[key].get(f"find {name}", 0)
            for key in ("calls", "cpu_ns")
        }
        assert len(mine) == said["calls"] == CLIENTS * TIMES
        assert cpu_ns.reindex(mine["query"]).sum() / 1e9 == near_kernels(said["cpu_ns"] / 1e9)


@pytest.mark.parametrize("rung", RUNGS)
def test_what_a_server_asks_itself_is_no_request(
    mongod: DatabaseServer, rung: str, tmp_path: Path
) -> None:
    with Client(mongod) as client:
        before = status(client)
        with recording(tmp_path / "t", "--pid", str(mongod.pid), "--rung", rung):
            for _ in range(20):
                client.ask({"count": "outer", "itself": 1})
        after = status(client)
    assert after["calls"]["count inner"] - before["calls"].get("count inner", 0) == 20
    assert after["calls"]["delete expired"] > before["calls"].get("delete expired", 0)
    run = Run(tmp_path / "t")
    assert run.executions() == {"shop.outer count itself ?": 20}
    owners = run.trace.pandas("owners")
    assert "TTLMonitor" in set(owners[owners["kind"] == "server"]["role"])


@pytest.mark.parametrize("rung", RUNGS)
def test_a_drivers_day(mongod: DatabaseServer, rung: str, tmp_path: Path) -> None:
    """Its monitoring streams replies (exhaust); its requests are compressed, or have no reply."""
    with recording(tmp_path / "t", "--pid", str(mongod.pid), "--rung", rung):
        options: dict[str, Any] = {"compressors": "zlib", "appname": "till"}
        with mongod.connect(**options) as client:
            orders = client.shop.orders
            quiet = orders.with_options(write_concern=WriteConcern(w=0))
            for number in range(50):
                orders.insert_one({"a": number})
                quiet.insert_one({"a": number})
            assert orders.find_one({"a": {"$gt": 1}}, sort=[("a", pymongo.ASCENDING)])
            assert client.admin.command("ping")["ok"] == 1
    run = Run(tmp_path / "t")
    assert run.loss == {}
    counted = run.executions()
    greetings = sum(counted.pop(text, 0) for text in ("admin hello", "admin ismaster"))
    assert greetings >= 2  # one connection for work, one for monitoring; perhaps one more
    assert counted["shop.orders insert"] == 100
    assert counted["shop.orders find {a: {$gt: ?}} limit ? sort {a: ?}"] == 1
    assert set(run.trace.pandas("sessions")["application"].dropna()) == {"till"}


@pytest.mark.parametrize("version", [version for version in VERSIONS if version != "7"])
def test_the_signatures_of_other_versions(version: str, tmp_path: Path) -> None:
    try:
        with (
            mongod_stand_in(version) as server,
            Client(server) as client,
            recording(tmp_path / "t", "--pid", str(server.pid), "--rung", "symbol"),
        ):
            for _ in range(20):
                client.ask({"find": "orders", "filter": {"a": 1}})
    except Unavailable as reason:
        pytest.skip(str(reason))
    run = Run(tmp_path / "t")
    assert run.executions() == {"shop.orders find {a: ?}": 20}
