"""Starts each server with a study's settings. Only `start` imports it: it needs all drivers."""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from qjoule.errors import UsageError
from qjoule.studies.servers import cassandra as cassandra_servers
from qjoule.studies.servers import mongodb as mongodb_servers
from qjoule.studies.servers import mysql as mysql_servers
from qjoule.studies.servers import voltdb as voltdb_servers
from qjoule.studies.servers.accounts import service_account
from qjoule.studies.servers.fetched import fetched
from qjoule.studies.servers.postgres import postgres_server
from qjoule.studies.servers.process import (
    DatabaseServer,
)
from qjoule.studies.servers.redis import redis_server
from qjoule.studies.workload import Target, Value

Settings = Mapping[str, Value]


@contextmanager
def mariadb(settings: Settings) -> Iterator[Target]:
    """MariaDB; its user `qjoule` may do everything."""
    password, account = secrets.token_hex(16), service_account("mysql")
    options = _options(settings, "ON", "OFF")
    with mysql_servers.mariadb_server(*options, account=account, password=password) as server:
        yield _target("mariadb", server, mysql_servers.USER, password)


@contextmanager
def mysql(settings: Settings) -> Iterator[Target]:
    """MySQL as fetched; as MariaDB, it waits for the disk at commits only if a setting says so."""
    password, account = secrets.token_hex(16), service_account("mysql")
    base = fetched("mysql")
    options = ["--skip-log-bin", "--innodb-flush-log-at-trx-commit=0"]
    options += _options(settings, "ON", "OFF")
    with mysql_servers.mysql_server(base, *options, account=account, password=password) as server:
        yield _target("mysql", server, mysql_servers.USER, password)


@contextmanager
def postgres(settings: Settings) -> Iterator[Target]:
    """PostgreSQL; no commit waits for the disk unless `fsync` is set."""
    password = secrets.token_hex(16)
    words = [f"{name}={_text(value, 'on', 'off')}" for name, value in settings.items()]
    # Statistics that only this server would keep are not to be part of what is measured.
    words.insert(0, "shared_preload_libraries=")
    with postgres_server(*words, password=password) as server:
        yield _target("postgres", server, "postgres", password)


@contextmanager
def redis(settings: Settings) -> Iterator[Target]:
    """Redis, which writes nothing to disk unless `save` or `appendonly` is set."""
    password = secrets.token_hex(16)
    words = [
        word
        for name, value in settings.items()
        for word in (f"--{name}", _text(value, "yes", "no"))
    ]
    account = service_account("redis")
    with redis_server(*words, account=account, password=password) as server:
        yield _target("redis", server, "", password)


@contextmanager
def mongodb(settings: Settings) -> Iterator[Target]:
    """The mongod on PATH, else FerretDB as fetched."""
    account, options = service_account("mongodb"), _options(settings, "true", "false")
    found = shutil.which("mongod")
    if found:
        with mongodb_servers.mongod_server(Path(found), *options, account=account) as server:
            yield _target("mongodb", server)
        return
    program = fetched("ferretdb") / "ferretdb"
    with mongodb_servers.ferretdb_server(program, *options, account=account) as server:
        yield _target("mongodb", server)


@contextmanager
def cassandra(settings: Settings) -> Iterator[Target]:
    """Cassandra of one node, as fetched."""
    # JSON is YAML: a text cannot end its line, nor become a mapping.
    lines = {name: json.dumps(value) for name, value in settings.items()}
    installed = fetched("cassandra")
    with cassandra_servers.cassandra_server(installed, settings=lines) as server:
        yield _target("cassandra", server)


@contextmanager
def voltdb(settings: Settings) -> Iterator[Target]:
    """VoltDB of one node, as fetched."""
    if settings:
        raise UsageError(f"voltdb has no settings here: take {next(iter(settings))} out")
    with voltdb_servers.voltdb_server(fetched("voltdb"), account=service_account()) as server:
        yield _target("voltdb", server)


def _target(flavour: str, server: DatabaseServer, user: str = "", password: str = "") -> Target:
    socket = str(server.socket) if server.socket.exists() else ""
    return Target(
        flavour, server.pid, port=server.port, socket=socket, user=user, password=password
    )


def _options(settings: Settings, true: str, false: str) -> list[str]:
    return [f"--{name}={_text(value, true, false)}" for name, value in settings.items()]


def _text(value: Value, true: str, false: str) -> str:
    if isinstance(value, bool):
        return true if value else false
    return str(value)
