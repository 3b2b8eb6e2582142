# SPDX-License-Identifier: Apache-2.0
"""The demo's server: a throwaway MariaDB with room for the data set, and clients of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pymysql

from qjoule_studies.servers import throwaway_mariadb as throwaway
from qjoule_studies.servers.throwaway_mariadb import MariaDB

USER = "demo"
DATABASE = "twitter"
OPTIONS = ("--innodb-buffer-pool-size=512M",)  # twice the size of the default data set


@contextmanager
def throwaway_mariadb(directory: Path) -> Iterator[MariaDB]:
    """Starts a server below `directory`, and stops it afterwards. Raises `QjouleError`."""
    with throwaway.throwaway_mariadb(directory, USER, DATABASE, OPTIONS) as server:
        yield server


def connect(server: MariaDB) -> pymysql.Connection:
    """A connection to the database, in autocommit."""
    return pymysql.connect(
        host="127.0.0.1",
        port=server.port,
        user=server.user,
        password=server.password,
        database=server.database,
        autocommit=True,
        connect_timeout=5,
    )


def server_version(connection: pymysql.Connection) -> str:
    """The server's version without the distribution's suffix, such as 10.11.6."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT VERSION()")
        (version,) = cursor.fetchone() or ("?",)
    return str(version).partition("-")[0]
