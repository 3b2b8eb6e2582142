# SPDX-License-Identifier: Apache-2.0
"""A Redis or Valkey is asked for the names of connections that were open before tracing began."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from qjoule.studies.servers.unavailable import Unavailable
from servers.process import DatabaseServer
from servers.redis import redis_server
from servers.valkey import valkey_server
from tracing.recording import Run, attribute, recording
from tracing.redis_client import redis_client, resp

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

CLIENTS, PASSWORD = 6, "r_word-not-to-be-seen"
STARTS = {"redis": redis_server, "valkey": valkey_server}


@pytest.fixture(scope="module", params=STARTS)
def server(
    request: pytest.FixtureRequest,
    no_server_is_left: None,  # noqa: ARG001
) -> Iterator[DatabaseServer]:
    try:
        with STARTS[request.param]() as started:
            with redis_client(started.port) as client:
                rights = (b"on", b">" + PASSWORD.encode(), b"+client|list", b"+ping", b"+client")
                client.ask(resp(b"ACL", b"SETUSER", b"r_reader", *rights))
            yield started
    except Unavailable as reason:
        pytest.skip(str(reason))


def _credentials(server: DatabaseServer, directory: Path, password: str) -> tuple[str, ...]:
    product = "redis" if "redis" in Path(server.argv[0]).name else "valkey"
    file = directory / f"{len(password)}.toml"
    file.write_text(f'[{product}]\nuser = "r_reader"\npassword = "{password}"\n')
    file.chmod(0o600)
    return "--credentials", str(file)


@pytest.mark.parametrize("asks", [True, False], ids=["with credentials", "without"])
def test_names_by_the_servers_list(server: DatabaseServer, tmp_path: Path, asks: bool) -> None:
    """Also of a connection that first speaks later. One renamed since then has both names."""
    options = ["--pid", str(server.pid), "--client-tags"]
    options += _credentials(server, tmp_path, PASSWORD) if asks else ()
    with ExitStack() as stack:
        clients = [stack.enter_context(redis_client(server.port)) for _ in range(CLIENTS)]
        for at, client in enumerate(clients):
            client.ask(resp(b"CLIENT", b"SETNAME", b"pool-%d" % at))
        with recording(tmp_path / "t", *options) as recorder:
            for speaking in (clients[1:], clients):
                for client in speaking:
                    client.ask(resp(b"ECHO", b"x"))
                time.sleep(1.5)  # for the answer
            for client in clients:
                client.ask(resp(b"GET", b"last"))
            clients[1].ask(resp(b"CLIENT", b"SETNAME", b"renamed"))
            clients[1].ask(resp(b"LLEN", b"renamed"))
    assert "--credentials" not in recorder.said
    run = Run(tmp_path / "t")
    assert run.loss == {}
    names = {f"pool-{at}" for at in range(CLIENTS)} if asks else set()
    assert set(run.having("GET last")["application"].dropna()) == names
    assert set(run.having("LLEN")["application"]) == {"renamed"}
    rows = attribute(tmp_path / "t", "--by", "application")["rows"]
    assert names <= {row["application"] for row in rows}


def test_why_a_server_cannot_be_asked_is_said(server: DatabaseServer, tmp_path: Path) -> None:
    options = _credentials(server, tmp_path, f"wrong-{PASSWORD}")
    with redis_client(server.port) as client:
        client.ask(resp(b"CLIENT", b"SETNAME", b"nobody"))
        where = "--pid", str(server.pid), "--client-tags"
        with recording(tmp_path / "t", *where, *options) as recorder:
            client.ask(resp(b"GET", b"x"))
    assert "CLIENT LIST cannot be read" in recorder.said
    assert PASSWORD not in recorder.said
