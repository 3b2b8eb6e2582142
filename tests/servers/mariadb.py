"""MariaDB from the distribution (`mariadb-server-core`)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pymysql

from servers.process import (
    DatabaseServer,
    Unavailable,
    free_port,
    run_quietly,
    running,
    server_directory,
)


@contextmanager
def mariadb_server(*options: str) -> Iterator[DatabaseServer]:
    """A MariaDB with these further options.

    Raises:
        Unavailable: it is not installed.
    """
    server, install = _executable("mariadbd"), _executable("mariadb-install-db")
    with server_directory() as directory:
        data = directory / "data"
        user = ["--user=root"] if os.geteuid() == 0 else []
        run_quietly(
            [
                install,
                "--no-defaults",
                *user,
                f"--datadir={data}",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
            ],
            directory,
        )
        port, socket = free_port(), directory / "s"
        argv = [
            server,
            "--no-defaults",
            *user,
            f"--datadir={data}",
            "--bind-address=127.0.0.1",
            f"--port={port}",
            f"--socket={socket}",
            f"--tmpdir={directory}",
            f"--pid-file={directory / 'pid'}",
            "--innodb-flush-log-at-trx-commit=0",
            *options,
        ]
        with running(
            DatabaseServer("mariadb", directory, argv, port, socket, connect_mysql)
        ) as started:
            yield started


def connect_mysql(server: DatabaseServer, tcp: bool, arguments: dict[str, Any]) -> Any:
    """A pymysql connection as root, in autocommit."""
    where: dict[str, Any] = (
        {"host": "127.0.0.1", "port": server.port} if tcp else {"unix_socket": str(server.socket)}
    )
    defaults = {"user": "root", "autocommit": True, "connect_timeout": 10}
    return pymysql.connect(**{**where, **defaults, **arguments})


def _executable(name: str) -> str:
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if path is None:
        raise Unavailable(f"{name} is not installed (package mariadb-server-core)")
    return str(Path(path))
