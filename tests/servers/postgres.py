"""PostgreSQL from the distribution (`postgresql-15`), with pg_stat_statements loaded."""

from __future__ import annotations

import os
import pwd
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from servers.process import (
    DatabaseServer,
    Unavailable,
    free_port,
    run_quietly,
    running,
    server_directory,
    with_parent,
)


@contextmanager
def postgres_server(*options: str) -> Iterator[DatabaseServer]:
    """A PostgreSQL with these further options, each `name=value`.

    Raises:
        Unavailable: it is not installed.
    """
    binaries = _binaries()
    with server_directory() as directory:
        identity = _give_to_server_user(directory)
        data = directory / "data"
        initdb = [str(binaries / "initdb"), "-D", str(data), "-A", "trust", "-U", "postgres"]
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
            _connect,
            identity,
            stop_signal=signal.SIGINT,  # fast shutdown: does not wait for clients
        )
        with running(server) as started:
            yield started


def _connect(server: DatabaseServer, tcp: bool, arguments: dict[str, Any]) -> Any:
    """A psycopg connection as postgres, in autocommit."""
    host = "127.0.0.1" if tcp else str(server.directory)
    defaults = {"user": "postgres", "dbname": "postgres", "autocommit": True, "connect_timeout": 10}
    return psycopg.connect(host=host, port=server.port, **{**defaults, **arguments})


def _binaries() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=_major)
    if not found:
        raise Unavailable("PostgreSQL is not installed (package postgresql)")
    return found[-1].parent


def _major(postgres: Path) -> int:
    name = postgres.parent.parent.name
    return int(name) if name.isdigit() else 0


def _give_to_server_user(directory: Path) -> tuple[str, ...]:
    """PostgreSQL refuses to run as root: setpriv's options to become another user."""
    if os.geteuid() != 0:
        return ()
    try:
        user = pwd.getpwnam("postgres")
    except KeyError:
        user = pwd.getpwnam("nobody")
    os.chown(directory, user.pw_uid, user.pw_gid)
    return (f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups")
