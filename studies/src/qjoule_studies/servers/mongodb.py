# SPDX-License-Identifier: Apache-2.0
"""Servers that speak MongoDB's protocol: FerretDB on SQLite, and mongod."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pymongo

from qjoule_studies.servers.prerequisites import Account, fetched, own_account, service_account
from qjoule_studies.servers.process import (
    DatabaseServer,
    Settings,
    free_port,
    options,
    running,
    server_directory,
    target,
)
from qjoule_studies.workload import Target


@contextmanager
def ferretdb_server(
    program: Path, *options: str, account: Account | None = None
) -> Iterator[DatabaseServer]:
    """A FerretDB on SQLite with these further options.

    Args:
        account: whom it runs as; ourselves unless given.
    """
    account = account or own_account()
    with server_directory() as directory:
        port, data = free_port(), _data(directory, account)
        argv = [
            str(program),
            "--handler=sqlite",
            f"--sqlite-url=file:{data}/",
            f"--listen-addr=127.0.0.1:{port}",
            "--debug-addr=-",
            "--telemetry=disable",
            f"--state-dir={directory}",
            *options,
        ]
        with _served("ferretdb", directory, argv, port, account) as started:
            yield started


@contextmanager
def mongod_server(
    program: Path, *options: str, account: Account | None = None
) -> Iterator[DatabaseServer]:
    """This mongod with these further options; `account` as above."""
    account = account or own_account()
    with server_directory() as directory:
        port, data = free_port(), _data(directory, account)
        argv = [
            str(program.resolve()),
            *("--port", str(port)),
            *("--dbpath", str(data)),
            *("--bind_ip", "127.0.0.1"),
            *("--unixSocketPrefix", str(directory)),
            *options,
        ]
        with _served("mongod", directory, argv, port, account) as started:
            yield started


@contextmanager
def _served(
    name: str, directory: Path, argv: Sequence[str], port: int, account: Account
) -> Iterator[DatabaseServer]:
    server = DatabaseServer(
        name, directory, list(argv), port, directory / "s", connect_mongodb, account.identity
    )
    with running(server) as started:
        yield started


def _data(directory: Path, account: Account) -> Path:
    """An empty directory of the server's."""
    data = directory / "data"
    data.mkdir()
    for path in (directory, data):
        account.own(path)
    return data


def connect_mongodb(
    server: DatabaseServer, tcp: bool, arguments: dict[str, Any]
) -> pymongo.MongoClient[dict[str, Any]]:
    """A client whose first connection has answered one ping."""
    assert not tcp or server.port
    defaults: dict[str, Any] = {"serverSelectionTimeoutMS": 30_000, "directConnection": True}
    client: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(
        "127.0.0.1", server.port, **{**defaults, **arguments}
    )
    client.admin.command("ping")
    return client


OURS = frozenset(
    [
        "bind-ip",
        "config",
        "dbpath",
        "debug-addr",
        "fork",
        "handler",
        "listen-addr",
        "logpath",
        "pidfilepath",
        "port",
        "sqlite-url",
        "state-dir",
        "unixsocketprefix",
    ]
)


@contextmanager
def _mongodb(settings: Settings) -> Iterator[Target]:
    """The mongod on PATH, else FerretDB as fetched."""
    account, arguments = service_account("mongodb"), options(settings, "true", "false")
    mongod = shutil.which("mongod")
    if mongod:
        with mongod_server(Path(mongod), *arguments, account=account) as server:
            yield target("mongodb", server)
        return
    program = fetched("ferretdb") / "ferretdb"
    with ferretdb_server(program, *arguments, account=account) as server:
        yield target("mongodb", server)


STARTS = {"mongodb": _mongodb}


CONNECT_S = 10


def connect_target(target: Target, longest_s: float) -> pymongo.MongoClient[dict[str, Any]]:
    """A client of one connection, made at its first command; none takes longer than `longest_s`.

    Its commands raise pymongo.errors.PyMongoError.
    """
    login: dict[str, Any] = {}
    if target.user:
        login = {"username": target.user, "password": target.password}
    return pymongo.MongoClient(
        target.host,
        target.port,
        serverSelectionTimeoutMS=CONNECT_S * 1_000,
        socketTimeoutMS=int(longest_s * 1_000),
        directConnection=True,
        maxPoolSize=1,
        **login,
    )
