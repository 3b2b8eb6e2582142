# SPDX-License-Identifier: Apache-2.0
"""`doctor --traffic` calls a rung exact only after requests have shown it."""

from __future__ import annotations

from pathlib import Path

import pytest

from qjoule.commands import doctor_traffic
from qjoule.contract import Rung
from qjoule.servers.choice import Choice
from qjoule.servers.plan import AttachPlan, PlannedServer
from qjoule.servers.types import Fact, Server
from qjoule.session.traffic import Traffic

NO = Fact(False, "")
REDIS = Path("/redis-server")
SOCKET = {3: frozenset({"socket"})}


def planned(rung: Rung = Rung.SOCKET, *, exact: bool = True, runs: bool = True) -> PlannedServer:
    tgids = (100,) if runs else ()
    server = Server(3, "redis", "8.0", REDIS, str(REDIS), (1, 2), tgids, (6379,), (), NO, NO)
    return PlannedServer(server, Choice(rung, "why", exact=exact))


@pytest.mark.parametrize(
    ("traffic", "begins", "proven"),
    [
        (Traffic(1, {3: 1234}, SOCKET), "1,234 requests in 1 s; lost, of all servers: no", True),
        (Traffic(1, {3: 1000}, SOCKET, loss={"framing": 10}), "1,000 requests in 1 s; lost", True),
        (Traffic(1, {3: 1000}, SOCKET, loss={"framing": 11}), "1,000 requests in 1 s; lost", False),
        (Traffic(1, {4: 9}, {4: SOCKET[3]}), "no request in 1 s, so this is not proven", False),
        (Traffic(1, hidden={3: 2}), "0 requests in 1 s, and 2 sessions that are hidden", False),
        (Traffic(1, {3: 5}, SOCKET, hidden={3: 1}), "5 requests in 1 s, and 1", False),
    ],
)
def test_requests_and_losses_decide(traffic: Traffic, begins: str, proven: bool) -> None:
    assert doctor_traffic.words(traffic, planned()).startswith(begins)
    assert doctor_traffic.of_server(traffic, planned())["traffic"]["proven_exact"] is proven
    inexact = doctor_traffic.of_server(traffic, planned(exact=False))
    assert not inexact["traffic"]["proven_exact"]


def test_other_rungs_and_problems_are_named() -> None:
    both = Traffic(1, {3: 5}, {3: frozenset({"socket", "statistical"})})
    assert "some on another rung: statistical" in doctor_traffic.words(both, planned())
    failed = Traffic(2, problem="refused")
    assert doctor_traffic.words(failed, planned()) == "not measured: refused"


@pytest.mark.parametrize("server", [planned(Rung.NONE), planned(runs=False)])
def test_only_running_servers_with_queries_are_measured(server: PlannedServer) -> None:
    assert doctor_traffic.words(Traffic(1, {3: 5}, SOCKET), server) == ""
    assert doctor_traffic.of_server(Traffic(1, {3: 5}, SOCKET), server) == {}


def test_too_many_losses_raise_an_alarm() -> None:
    dark = Traffic(1, loss={"framing": 42_139})
    (line,) = doctor_traffic.alarm(dark)
    assert line.startswith("100.0 % of requests were lost")
    assert doctor_traffic.to_json(dark)["traffic"]["alarm"] == line
    for quiet in (Traffic(1, {3: 5}, SOCKET), None):
        assert list(doctor_traffic.alarm(quiet)) == []
    assert doctor_traffic.to_json(None) == {}


def test_nothing_is_traced_without_root_or_time() -> None:
    plan = AttachPlan((planned(),))
    assert doctor_traffic.measure(plan, 0.0) is None
    assert doctor_traffic.measure(plan, 1.0) is None, "there is no root part here"
