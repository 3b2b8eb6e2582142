# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL from the distribution (`postgresql-15`), with pg_stat_statements loaded."""

from __future__ import annotations

import secrets
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from qjoule_studies.servers.prerequisites import Account, Unavailable, service_account
from qjoule_studies.servers.process import (
    DatabaseServer,
    Settings,
    free_port,
    run_quietly,
    running,
    server_directory,
    target,
    text,
    with_parent,
)
from qjoule_studies.workload import Target


@contextmanager
def postgres_server(
    *options: str,
    account: Account | None = None,
    password: str = "",
    programs: Path | None = None,
    below: Path | None = None,
) -> Iterator[DatabaseServer]:
    """A PostgreSQL with these further options, each `name=value`.

    It refuses to run as root, so root starts it as the user `postgres` or `nobody`.

    Args:
        account: whom it runs as instead.
        password: of `postgres`; without one, whoever reaches the server is let in.
        programs: the directory of its programs; the newest of the system unless given.
        below: where its directory is made.

    Raises:
        Unavailable: it is not installed.
    """
    binaries, account = programs or installed_programs(), account or service_account("postgres")
    with server_directory(below) as directory:
        account.own(directory)
        identity = account.identity
        data = directory / "data"
        initdb = [str(binaries / "initdb"), "-D", str(data), "-U", "postgres"]
        initdb += _authentication(directory, account, password)
        locale = ["-E", "UTF8", "--locale=C", "--no-sync"]
        run_quietly([*with_parent(*identity), *initdb, *locale], directory)
        port = free_port()
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(directory),
            "shared_preload_libraries": "pg_stat_statements",
            "fsync": "off",
            **dict(option.split("=", 1) for option in options),
        }
        argv = [str(binaries / "postgres"), "-D", str(data), "-p", str(port)]
        for name, value in settings.items():
            argv += ["-c", f"{name}={value}"]
        server = DatabaseServer(
            "postgres",
            directory,
            argv,
            port,
            directory / f".s.PGSQL.{port}",
            partial(_connect, password),
            identity,
            stop_signal=signal.SIGINT,  # fast shutdown: does not wait for clients
        )
        with running(server) as started:
            yield started


def _authentication(directory: Path, account: Account, password: str) -> list[str]:
    """Options of initdb."""
    if not password:
        return ["-A", "trust"]
    file = directory / "password"
    account.write(file, password + "\n")
    return ["-A", "scram-sha-256", f"--pwfile={file}"]


def _connect(password: str, server: DatabaseServer, tcp: bool, arguments: dict[str, Any]) -> Any:
    """A psycopg connection as postgres, in autocommit."""
    host = "127.0.0.1" if tcp else str(server.directory)
    defaults: dict[str, Any] = {
        "user": "postgres",
        "dbname": "postgres",
        "autocommit": True,
        "connect_timeout": 10,
    }
    if password:
        defaults["password"] = password
    return psycopg.connect(host=host, port=server.port, **{**defaults, **arguments})


def installed_programs() -> Path:
    """The directory of the system's newest. Raises `Unavailable`."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=_major)
    if not programs:
        raise Unavailable("PostgreSQL is not installed (package postgresql)")
    return programs[-1].parent


def _major(postgres: Path) -> int:
    name = postgres.parent.parent.name
    return int(name) if name.isdigit() else 0


OURS = frozenset(
    [
        "config-file",
        "data-directory",
        "external-pid-file",
        "hba-file",
        "ident-file",
        "listen-addresses",
        "port",
        "unix-socket-directories",
    ]
)


@contextmanager
def _postgres(settings: Settings) -> Iterator[Target]:
    """PostgreSQL; no commit waits for the disk unless `fsync` is set."""
    password = secrets.token_hex(16)
    assignments = [f"{name}={text(value, 'on', 'off')}" for name, value in settings.items()]
    # Statistics that only this server would keep are not to be part of what is measured.
    assignments.insert(0, "shared_preload_libraries=")
    with postgres_server(*assignments, password=password) as server:
        yield target("postgres", server, "postgres", password)


STARTS = {"postgres": _postgres}


CONNECT_S = 10


def connect_target(target: Target, own: str) -> psycopg.Connection[Any]:
    """In autocommit, in the target's database or in `own`. Raises psycopg.Error."""

    def to(database: str) -> psycopg.Connection[Any]:
        return psycopg.connect(
            host=target.host,
            port=target.port,
            user=target.user,
            password=target.password,
            dbname=database,
            autocommit=True,
            connect_timeout=CONNECT_S,
        )

    if not target.database:
        with to("postgres") as first, suppress(psycopg.errors.DuplicateDatabase):
            first.execute(f'CREATE DATABASE "{own}"')
    return to(target.database or own)
