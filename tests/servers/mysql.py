"""MySQL, where the distribution has only MariaDB."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from servers.fetched import mysql80
from servers.mariadb import connect_mysql
from servers.process import (
    DatabaseServer,
    Unavailable,
    free_port,
    run_quietly,
    running,
    server_directory,
)


@contextmanager
def mysql_server(
    *options: str, installation: Callable[[], Path] = mysql80.installation
) -> Iterator[DatabaseServer]:
    """A MySQL with these further options: 8.0.15 unless another is given.

    Raises:
        Unavailable: it cannot be fetched, or lacks a library of the system.
    """
    base = mysql_installation(installation)
    executable = str(base / "bin" / "mysqld")
    user = ["--user=root"] if os.geteuid() == 0 else []
    with server_directory() as directory:
        data = directory / "data"
        common = [executable, "--no-defaults", *user, f"--basedir={base}", f"--datadir={data}"]
        run_quietly([*common, "--initialize-insecure"], directory)
        port, socket = free_port(), directory / "s"
        argv = [
            *common,
            "--bind-address=127.0.0.1",
            f"--port={port}",
            f"--socket={socket}",
            f"--tmpdir={directory}",
            f"--pid-file={directory / 'pid'}",
            "--mysqlx=OFF",
            "--secure-file-priv=",
            *options,
        ]
        server = DatabaseServer("mysql", directory, argv, port, socket, connect_mysql)
        with running(server) as started:
            yield started


def mysql_installation(fetched: Callable[[], Path] = mysql80.installation) -> Path:
    """The unpacked server, fetched on first use, if the system has the libraries that it needs."""
    base = fetched()
    missing = subprocess.run(
        ["ldd", str(base / "bin" / "mysqld")], capture_output=True, text=True, check=False
    ).stdout
    lacking = [line.split()[0] for line in missing.splitlines() if "not found" in line]
    if lacking:
        raise Unavailable(f"MySQL lacks {', '.join(lacking)} (packages libaio1, libnuma1)")
    return base
