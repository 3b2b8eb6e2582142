# SPDX-License-Identifier: Apache-2.0
"""A MongoDB is asked for the users and applications of sessions that were open before tracing.

The stand-in answers `$currentOp` as MongoDB's manual describes it; FerretDB has no such stage.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from servers.mongodb import ferretdb_server, mongod_stand_in
from servers.process import DatabaseServer, Unavailable
from tracing.mongodb_client import Client
from tracing.recording import Run, attribute, recording

pytestmark = [pytest.mark.root, pytest.mark.server]

CLIENTS = 4


@pytest.fixture(scope="module")
def mongod(no_server_is_left: None) -> Iterator[DatabaseServer]:  # noqa: ARG001
    try:
        with mongod_stand_in() as server:
            yield server
    except Unavailable as reason:
        pytest.skip(str(reason))


def _connected(server: DatabaseServer, at: int) -> Client:
    """A connection that has introduced itself, and logged in unless it is the last."""
    client = Client(server)
    client.ask({"hello": 1, "client": {"application": {"name": f"shop-{at}"}}})
    if at < CLIENTS - 1:
        client.ask({"authenticate": 1, "mechanism": "MONGODB-X509", "user": f"CN=client-{at}"})
    return client


def _credentials(directory: Path, product: str) -> list[str]:
    file = directory / "accounts.toml"
    file.write_text(f"[{product}]\n")
    file.chmod(0o600)
    return ["--credentials", str(file)]


@pytest.mark.parametrize("rung", ["socket", "symbol"])
@pytest.mark.parametrize("told", [True, False], ids=["with credentials", "without"])
def test_names_by_the_servers_list(
    mongod: DatabaseServer, tmp_path: Path, rung: str, told: bool
) -> None:
    """On sockets a session is known by its client's address, by symbols by its thread's name. A
    connection that greets while tracing runs keeps the names of its greeting."""
    options = ["--pid", str(mongod.pid), "--rung", rung]
    options += _credentials(tmp_path, "mongodb") if told else []
    with ExitStack() as stack:
        clients = [stack.enter_context(_connected(mongod, at)) for at in range(CLIENTS)]
        with recording(tmp_path / "t", *options) as recorder:
            for at, client in enumerate(clients):
                client.ask({"find": f"c{at}", "filter": {"a": 1}})
            with _connected(mongod, CLIENTS) as late:
                late.ask({"find": "late", "filter": {"a": 1}})
        assert "--credentials" not in recorder.said
    run = Run(tmp_path / "t")
    found = run.queries[run.queries["text"].str.contains(" find ")]
    found = found[found["text"].str.startswith("shop.c") | found["text"].str.contains("late")]
    assert len(found) == CLIENTS + 1
    by_text = found.set_index(found["text"].str.split().str[0])
    names = by_text["application"].dropna().to_dict()
    users = by_text["user"].dropna().to_dict()
    expected = {f"shop.c{at}": f"shop-{at}" for at in range(CLIENTS)} if told else {}
    assert names == {**expected, "shop.late": f"shop-{CLIENTS}"}
    logged_in = range(CLIENTS - 1) if told else ()
    assert users == {f"shop.c{at}": f"CN=client-{at}" for at in logged_in}
    assert run.loss == {}
    if told:
        rows = attribute(tmp_path / "t", "--by", "application")["rows"]
        assert set(names.values()) <= {row["application"] for row in rows}


def test_why_a_server_cannot_be_asked_is_said(
    no_server_is_left: None,  # noqa: ARG001
    tmp_path: Path,
) -> None:
    try:
        with ferretdb_server() as server, Client(server) as client:
            client.ask({"hello": 1, "client": {"application": {"name": "shop"}}})
            options = "--pid", str(server.pid), *_credentials(tmp_path, "ferretdb")
            with recording(tmp_path / "t", *options) as recorder:
                client.ask({"ping": 1})
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert "$currentOp cannot be read" in recorder.said
