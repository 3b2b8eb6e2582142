# SPDX-License-Identifier: Apache-2.0
"""A server that no probe fits: joules per endpoint from the calls of its wrapped client. Also:
client tags within TLS.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from qjoule.trace.reader import Trace
from qjoule_drivers import channel as channel_module
from qjoule_drivers import tag
from qjoule_studies.servers.mysql import mariadb_server
from qjoule_studies.servers.process import DatabaseServer, free_port
from servers.databases import UNKNOWN, command_stats, or_skip, self_signed, unknown_redis
from tracing import mysql_client as wire
from tracing.mysql_client import mysql_client
from tracing.mysql_values import parameters, string
from tracing.recording import LONG_RUN, Run, at_once, attribute, qjoule, recording, statements

pytestmark = [pytest.mark.root, pytest.mark.server]

#: 20 spans of 250 ms, and three for each endpoint and the base, is the minimum for a regression.
SECONDS = 9.0
LEAST_CALLS = 200


@pytest.fixture(scope="module")
def server() -> Iterator[DatabaseServer]:
    with or_skip(), unknown_redis() as started:
        yield started


def _ran_ns(pid: int) -> int:
    """CPU time of all threads of a process, by the scheduler."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


def _load(client: Any, pid: int) -> tuple[dict[str, int], dict[str, int]]:
    """Two endpoints alternate, with pauses: without these, a regression could not separate them.

    Returns the calls of each, and the CPU time that the server used meanwhile.
    """
    chance = random.Random(20261121)
    calls, used_ns = {"get": 0, "sort": 0}, {"get": 0, "sort": 0}
    end_s = time.monotonic() + SECONDS
    while time.monotonic() < end_s or min(calls.values()) < LEAST_CALLS:
        for endpoint in calls:
            turn_s = time.monotonic() + 0.3 + chance.random() * 0.5
            before_ns = _ran_ns(pid)
            with tag(endpoint=endpoint):
                while time.monotonic() < turn_s:
                    if endpoint == "get":
                        client.get("one")
                    else:
                        client.sort("list", desc=True, start=0, num=1)
                    calls[endpoint] += 1
                    time.sleep(0.0005)
            used_ns[endpoint] += _ran_ns(pid) - before_ns
            time.sleep(chance.random() * 0.6)
    return calls, used_ns


def test_two_endpoints_of_a_server_that_nobody_knows(
    server: DatabaseServer, tags_socket: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "t"
    with closing(server.connect(tcp=True)) as client:
        client.rpush("list", *range(3000))
        client.set("one", "x")
        channel_module.channel.abandon()  # otherwise it looks for the recorder only in a second
        energy = ("--energy", "estimated:5,10,20,30")
        with recording(directory, "--pid", str(server.pid), *energy) as recorder:
            assert "(by thread)" in recorder.messages
            client.config_resetstat()
            calls, used_ns = _load(client, server.pid)
            stats = command_stats(client)
    assert {name: stats[name]["calls"] for name in calls} == calls
    result = attribute(directory, "--by", "tag:endpoint")
    rows = {row["tag:endpoint"]: row for row in result["rows"]}
    lost_tags = Trace(directory).loss.get("tags", 0)
    every = [*result["rows"], *result["fixed"]]
    of_server = [row for row in every if row["server"].startswith(f"{UNKNOWN}:")]
    server_ns, server_j = (sum(row[key] for row in of_server) for key in ("cpu_ns", "energy_j"))
    for name, executed in calls.items():
        row = rows[name]
        assert row["calls"] <= executed <= row["calls"] + lost_tags
        assert (row["attach_mode"], row["exact"]) == ("tag", False)
        assert row["latency_ns_p50"] > 0
        # Nothing else sent requests, so the CPU time in an endpoint's turns belongs to that
        # endpoint. The endpoint's own account is of elapsed time, part of which others use on a
        # busy machine.
        used_j = used_ns[name] / server_ns * server_j
        low_j, high_j = row["energy_j_ci95"]
        assert low_j <= used_j <= high_j
    assert stats["sort"]["usec"] > 5 * stats["get"]["usec"]
    assert rows["sort"]["energy_j"] > rows["get"]["energy_j"]
    assert rows["sort"]["energy_j_ci95"][0] > 0
    by_shape = {row["shape"]: row["calls"] for row in attribute(directory)["rows"]}
    assert by_shape["redis call  endpoint=sort"] == rows["sort"]["calls"]
    replayed = qjoule("top", "--replay", str(directory), "--by", "tag:endpoint", "-b", "-d", "600")
    assert replayed.returncode == 0, replayed.stderr
    assert "sort" in replayed.stdout
    del tags_socket


def test_calls_over_tls(server: DatabaseServer, tags_socket: Path, tmp_path: Path) -> None:
    """Nothing between client and server is readable; the client's reports are the only source."""
    key, certificate = self_signed(tmp_path)
    port = free_port()
    with closing(server.connect(tcp=True)) as client:
        client.config_set("tls-ca-cert-file", str(certificate))
        client.config_set("tls-cert-file", str(certificate), "tls-key-file", str(key))
        client.config_set("tls-auth-clients", "no", "tls-port", port)
    channel_module.channel.abandon()  # otherwise it looks for the recorder only in a second
    options = {"ssl": True, "ssl_cert_reqs": "required", "ssl_ca_certs": str(certificate)}
    with (
        recording(tmp_path / "t", "--pid", str(server.pid)),
        closing(server.connect(tcp=True, port=port, ssl_check_hostname=False, **options)) as client,
    ):
        for number in range(120):
            with tag(endpoint="get" if number % 3 else "set"):
                client.get("one") if number % 3 else client.set("one", "x")
    assert not Trace(tmp_path / "t").loss.get("tags", 0)
    rows = attribute(tmp_path / "t", "--by", "tag:endpoint")["rows"]
    tagged_rows = {row["tag:endpoint"]: row for row in rows if row["attach_mode"] == "tag"}
    assert {name: tagged_rows[name]["calls"] for name in ("get", "set")} == {"get": 80, "set": 40}
    assert all(tagged_rows[name]["latency_ns_p50"] > 0 for name in ("get", "set"))
    del tags_socket


# --------------------------------------------------------------------------------------------------
#
# Client tags within TLS: the symbol mode reads them as without TLS, sockets cannot.

CLIENTS = 64 if LONG_RUN else 4
CALLS = statements(600) // CLIENTS  #: for each client
ENDPOINTS = 5


@pytest.fixture
def mariadb_tls(tmp_path: Path) -> Iterator[DatabaseServer]:
    """A separate server: if a server has TLS, drivers use it unasked."""
    key, certificate = self_signed(tmp_path)
    with or_skip(), mariadb_server(f"--ssl-key={key}", f"--ssl-cert={certificate}") as server:
        yield server


def _expected() -> Counter[str]:
    return Counter(
        f"{client}/{(client + turn) % ENDPOINTS}"
        for client in range(CLIENTS)
        for turn in range(CALLS)
    )


def _comments(server: DatabaseServer, client: int) -> None:
    with closing(server.connect(tcp=True, ssl={})) as connection, connection.cursor() as cursor:
        cursor.execute("show status like 'Ssl_cipher'")
        assert cursor.fetchone()[1], "it is encrypted"
        for turn in range(CALLS):
            endpoint = f"{client}/{(client + turn) % ENDPOINTS}"
            cursor.execute(f"select {turn} as m_said /*endpoint='{endpoint}'*/")
            cursor.fetchall()


def _attributes(server: DatabaseServer, client: int) -> None:
    flags = wire.QUERY_ATTRIBUTES | wire.TLS
    with mysql_client(port=server.port, flags=flags) as connection:
        for turn in range(CALLS):
            endpoint = b"%d/%d" % (client, (client + turn) % ENDPOINTS)
            block = parameters([string(b"qjoule.endpoint", endpoint)])
            connection.query(b"\1\1" + block + b"select %d as m_said" % turn)


@pytest.mark.beside
@pytest.mark.parametrize(
    ("name", "send"),
    [
        ("mariadb_tls", _comments),
        ("mysql80", _comments),
        ("mysql8033", _comments),
        ("mysql8033", _attributes),
    ],
)
def test_what_clients_say_within_tls(
    name: str,
    send: Callable[[DatabaseServer, int], None],
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    server: DatabaseServer = request.getfixturevalue(name)
    with recording(tmp_path / "t", "--pid", str(server.pid), "--client-tags", "--ring-mb", "64"):
        at_once(partial(send, server), range(CLIENTS))
    run = Run(tmp_path / "t")
    counts: Counter[str] = Counter()
    queries = run.having("m_said")
    for tags, n in zip(queries["tags"], queries["executions"], strict=True):
        counts[dict(tags)["endpoint"]] += n
    assert counts == _expected()
    assert set(queries["attach_mode"]) == {"symbol"}
    assert run.loss == {}
