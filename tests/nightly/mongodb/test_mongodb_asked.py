# SPDX-License-Identifier: Apache-2.0
"""A MongoDB is asked for the users and applications of sessions that were open before tracing.

The stand-in answers `$currentOp` as MongoDB's manual describes it; FerretDB has no such stage.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from qjoule_studies.servers.process import DatabaseServer
from servers.databases import or_skip
from servers.mongodb import mongod_stand_in
from tracing.mongodb_client import Client
from tracing.recording import Run, attribute, credentials, recording, until_named

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

CLIENTS = 4


def _connected(server: DatabaseServer, at: int) -> Client:
    """A connection that has introduced itself, and logged in unless it is the last."""
    client = Client(server)
    client.ask({"hello": 1, "client": {"application": {"name": f"shop-{at}"}}})
    if at < CLIENTS - 1:
        client.ask({"authenticate": 1, "mechanism": "MONGODB-X509", "user": f"CN=client-{at}"})
    return client


def test_names_by_the_servers_list(tmp_path: Path) -> None:
    """On sockets a session is known by its client's address, by symbols by its thread's name. A
    connection that greets while tracing runs keeps the names of its greeting."""
    with or_skip(), ExitStack() as stack:
        server = stack.enter_context(mongod_stand_in())
        clients = [stack.enter_context(_connected(server, at)) for at in range(CLIENTS)]
        with ExitStack() as recordings:
            for attach_mode in ("socket", "symbol"):
                for asks in (True, False):
                    options = ["--pid", str(server.pid), "--attach", attach_mode]
                    options += credentials(tmp_path, "[mongodb]\n") if asks else ()
                    recordings.enter_context(
                        recording(tmp_path / f"{attach_mode}-{asks}", *options)
                    )
            for client in clients:
                client.ask({"find": "early", "filter": {"a": 1}})
            for attach_mode in ("socket", "symbol"):
                until_named(
                    tmp_path / f"{attach_mode}-True", *(f"shop-{at}" for at in range(CLIENTS))
                )
            for at, client in enumerate(clients):
                client.ask({"find": f"c{at}", "filter": {"a": 1}})
            with _connected(server, CLIENTS) as late:
                late.ask({"find": "late", "filter": {"a": 1}})
    for attach_mode in ("socket", "symbol"):
        for asks in (True, False):
            run = Run(tmp_path / f"{attach_mode}-{asks}")
            assert run.loss == {}
            found = run.queries[run.queries["text"].str.contains(r"^shop\.(?:c\d|late) find")]
            assert len(found) == CLIENTS + 1
            by_text = found.set_index(found["text"].str.split().str[0])
            known = range(CLIENTS) if asks else ()
            names = {f"shop.c{at}": f"shop-{at}" for at in known} | {"shop.late": f"shop-{CLIENTS}"}
            assert by_text["application"].dropna().to_dict() == names
            users = {f"shop.c{at}": f"CN=client-{at}" for at in known if at < CLIENTS - 1}
            assert by_text["user"].dropna().to_dict() == users
    rows = attribute(tmp_path / "socket-True", "--by", "application")["rows"]
    assert {f"shop-{at}" for at in range(CLIENTS)} <= {row["application"] for row in rows}


def test_why_a_server_cannot_be_asked_is_said(ferretdb: DatabaseServer, tmp_path: Path) -> None:
    with Client(ferretdb) as client:
        client.ask({"hello": 1, "client": {"application": {"name": "shop"}}})
        options = "--pid", str(ferretdb.pid), *credentials(tmp_path, "[ferretdb]\n")
        with recording(tmp_path / "t", *options) as recorder:
            client.ask({"ping": 1})
    assert "$currentOp cannot be read" in recorder.said
