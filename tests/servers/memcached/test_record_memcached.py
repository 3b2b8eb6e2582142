# SPDX-License-Identifier: Apache-2.0
"""Counts, shapes and loss on a real memcached: its statistics equal the trace's."""

from __future__ import annotations

import socket
import ssl
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from qjoule.contract import QueryFlag
from servers.certificates import self_signed
from servers.memcached import Client, memcached_server
from servers.process import DatabaseServer
from tracing import memcached_story as day
from tracing.recording import Run, Told, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]


@pytest.fixture(scope="module")
def memcached() -> Iterator[DatabaseServer]:
    with memcached_server() as server:
        yield server


@pytest.fixture(scope="module")
def told(memcached: DatabaseServer, tmp_path_factory: pytest.TempPathFactory) -> Told[day.Story]:
    directory = tmp_path_factory.mktemp("memcached") / "trace"
    with recording(directory, "--pid", str(memcached.pid), "--ring-mb", "16"):
        story = day.tell(memcached)
    return Told(story, Run(directory))


def test_memcached_nothing_is_lost(told: Told[day.Story]) -> None:
    assert told.run.loss == {}
    assert told.run.trace.complete
    assert set(told.run.queries["rung"]) == {"socket"}


def _by_command(run: Run) -> Counter[str]:
    """Executions by command and pattern. In a request of several, all but the last are single."""
    counted: Counter[str] = Counter()
    for text, executions in run.executions().items():
        commands = text.split("; ")
        requests = (run.queries["text"] == text).sum()
        if commands[:2] == ["set pipe:?", "get pipe:?"]:
            counted.update({"set pipe:?": executions // 2, "get pipe:?": executions // 2})
            continue
        for command in commands[:-1]:
            counted[command] += requests
        counted[commands[-1]] += executions - requests * (len(commands) - 1)
    return counted


def _named(told: Told[day.Story], *names: str) -> int:
    counted = _by_command(told.run)
    return sum(n for command, n in counted.items() if command.split()[0] in names)


def test_memcached_every_command_counts(told: Told[day.Story]) -> None:
    """The server's own counters, command by command."""
    story = told.story
    assert _named(told, "set", "ms") == story.count("cmd_set")
    assert _named(told, "get", "mg") == story.count("cmd_get")
    assert _named(told, "touch", "gat") == story.count("cmd_touch")
    assert _named(told, "incr") == story.count("incr_hits", "incr_misses")
    assert _named(told, "decr") == story.count("decr_hits", "decr_misses")
    assert _named(told, "delete", "md") == story.count("delete_hits", "delete_misses")


def test_memcached_commands_have_their_own_shape(told: Told[day.Story]) -> None:
    counted = _by_command(told.run)
    clients = day.CLIENTS
    expected = {
        "get user:?": clients * day.ROUNDS * (1 + day.MANY),
        "set user:?": clients * day.ROUNDS,
        "set quiet:?": clients * day.ROUNDS,
        "incr number:?": clients,
        "gat number:?": clients,
        "mg meta:?": day.ROUNDS,
        "md meta:?": day.ROUNDS,
        "mn": day.ROUNDS,
        "set bin:?": day.BINARY,
        "get missing:?": day.BINARY,
        "noop": day.BINARY,
        "set piece:?": 1,
        "set large:?": 1,
        "set trap:?": 1,
    }
    assert {text: counted[text] for text in expected} == expected


def test_memcached_a_pipeline_is_one_request(told: Told[day.Story]) -> None:
    mixed = told.run.flagged(QueryFlag.PIPELINED)
    pipelines = mixed[mixed["executions"] >= 2 * day.PIPELINED - 2]
    assert len(pipelines) >= 1


def test_memcached_no_value_is_told(told: Told[day.Story]) -> None:
    shapes = told.run.trace.pandas("shapes")
    assert not [text for text in shapes["text"] if "secret" in text or "hello" in text]
    assert len(told.run.trace.pandas("statements")) == 0


def test_memcached_requests_own_the_workers_cpu_time(told: Told[day.Story]) -> None:
    """All CPU time of its threads belongs to a request or to background; requests have
    some of it.
    """
    segments = told.run.trace.pandas("segments")
    of_queries = segments[segments["query"] != 0]
    spent = (of_queries["t1_ns"] - of_queries["t0_ns"]).sum()
    assert set(of_queries["query"]) <= set(told.run.queries["query"])
    assert (
        spent
        > 0.5
        * (segments["t1_ns"] - segments["t0_ns"])[
            segments["owner"].isin(set(of_queries["owner"]))
        ].sum()
    )


def test_memcached_a_connection_that_was_open_is_joined(
    memcached: DatabaseServer, tmp_path: Path
) -> None:
    with Client(memcached) as client:
        client.text(b"get before:1\r\n")
        with recording(tmp_path / "t", "--pid", str(memcached.pid)):
            for _ in range(20):
                client.text(b"get joined:7\r\n")
    assert Run(tmp_path / "t").executions()["get joined:?"] == 20


def test_memcached_udp_is_counted_as_loss(tmp_path: Path) -> None:
    with memcached_server("-U", str(_free_udp_port())) as server:
        port = _udp_port(server)
        with recording(tmp_path / "t", "--pid", str(server.pid)), _udp() as client:
            client.sendto(b"\x00\x01\x00\x00\x00\x01\x00\x00get over:udp\r\n", ("127.0.0.1", port))
            assert client.recv(1024).endswith(b"END\r\n")
    run = Run(tmp_path / "t")
    assert run.loss.get("framing") == 1
    assert not run.executions()


def test_memcached_tls_is_counted_as_opaque(tmp_path: Path) -> None:
    key, chain = self_signed(tmp_path)
    options = ("-Z", "-o", f"ssl_chain_cert={chain},ssl_key={key}")
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with memcached_server(*options) as server, recording(tmp_path / "t", "--pid", str(server.pid)):
        plain = socket.create_connection(("127.0.0.1", server.port), timeout=30)
        with plain, context.wrap_socket(plain) as client:
            client.sendall(b"get over:tls\r\n")
            assert client.recv(1024) == b"END\r\n"
    run = Run(tmp_path / "t")
    assert run.loss.get("opaque_session") == 1
    assert not run.executions()


def _udp() -> socket.socket:
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.settimeout(30)
    return client


def _free_udp_port() -> int:
    with _udp() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _udp_port(server: DatabaseServer) -> int:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        for connection in psutil.Process(server.pid).net_connections("udp4"):
            port: int = connection.laddr.port
            return port
        time.sleep(0.05)
    raise AssertionError("the server does not listen on UDP")
