# SPDX-License-Identifier: Apache-2.0
"""What `doctor` says of a moment of tracing, and that it calls nothing exact which was not seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from qjoule.commands import doctor_traffic
from qjoule.contract import Rung
from qjoule.servers.choice import Choice
from qjoule.servers.plan import AttachPlan, PlannedServer
from qjoule.servers.types import Fact, Server
from qjoule.session.traffic import Traffic


def planned(rung: Rung = Rung.SOCKET, *, exact: bool = True, runs: bool = True) -> PlannedServer:
    no = Fact(False, "")
    server = Server(
        id=3,
        flavour="redis",
        version="8.0",
        exe_path=Path("/redis-server"),
        exe_name="/redis-server",
        exe_id=(1, 2),
        tgids=(100,) if runs else (),
        ports=(6379,),
        sockets=(),
        encryption=no,
        thread_pool=no,
    )
    return PlannedServer(server, Choice(rung, "why", exact=exact))


SOCKET = {3: frozenset({"socket"})}


@pytest.mark.parametrize(
    ("traffic", "begins"),
    [
        (Traffic(1, {3: 1234}, SOCKET), "1,234 requests in 1 s; lost, of all servers: nothing"),
        (Traffic(1, {4: 9}, {4: SOCKET[3]}), "no request in 1 s, so this is not proven"),
        (Traffic(2, problem="refused"), "not measured: refused"),
        (Traffic(1, hidden={3: 2}), "0 requests in 1 s, and 2 sessions that are hidden"),
        (
            Traffic(1, {3: 5}, {3: frozenset({"socket", "statistical"})}, loss={"framing": 7}),
            "5 requests in 1 s, some on another rung: statistical; lost, of all servers: 7 losses",
        ),
    ],
)
def test_words(traffic: Traffic, begins: str) -> None:
    assert doctor_traffic.words(traffic, planned()).startswith(begins)


@pytest.mark.parametrize(
    "one", [planned(Rung.NONE), planned(runs=False)], ids=["not traced", "not running"]
)
def test_only_running_servers_with_queries_are_measured(one: PlannedServer) -> None:
    assert doctor_traffic.words(Traffic(1, {3: 5}, SOCKET), one) == ""
    assert doctor_traffic.of_server(Traffic(1, {3: 5}, SOCKET), one) == {}


@pytest.mark.parametrize(
    ("traffic", "exact", "proven"),
    [
        (Traffic(1, {3: 1000}, SOCKET, loss={"framing": 10}), True, True),
        (Traffic(1, {3: 1000}, SOCKET, loss={"framing": 11}), True, False),
        (Traffic(1, {3: 1000}, SOCKET, hidden={3: 1}), True, False),
        (Traffic(1, {3: 1000}, SOCKET), False, False),
        (Traffic(1), True, False),
    ],
)
def test_exact_is_proven_by_requests_that_were_seen(
    traffic: Traffic, exact: bool, proven: bool
) -> None:
    said = doctor_traffic.of_server(traffic, planned(exact=exact))["traffic"]
    assert said["proven_exact"] is proven


def test_an_alarm_is_said_once() -> None:
    dark = Traffic(1, loss={"framing": 42_139})
    (line,) = doctor_traffic.alarm(dark)
    assert line.startswith("100.0 % of requests were lost")
    assert doctor_traffic.to_json(dark)["traffic"]["alarm"] == line
    assert list(doctor_traffic.alarm(Traffic(1, {3: 5}, SOCKET))) == []
    assert list(doctor_traffic.alarm(None)) == []
    assert doctor_traffic.to_json(None) == {}


def test_nothing_is_traced_without_root_or_time() -> None:
    plan = AttachPlan((planned(),))
    assert doctor_traffic.measure(plan, 0.0) is None
    assert doctor_traffic.measure(plan, 1.0) is None, "there is no root part here"
