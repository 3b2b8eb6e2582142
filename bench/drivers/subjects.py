# SPDX-License-Identifier: Apache-2.0
"""The drivers to measure, each with a server and a point query on it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from qjoule_studies.servers.process import DatabaseServer

Call = Callable[[], object]


def _pymysql(server: DatabaseServer) -> tuple[Any, Call]:
    connection = server.connect(tcp=True)
    cursor = connection.cursor()
    return connection, lambda: (cursor.execute("select 1"), cursor.fetchall())


def _psycopg(server: DatabaseServer) -> tuple[Any, Call]:
    connection = server.connect(tcp=True)
    return connection, lambda: connection.execute("select 1").fetchall()


def _redis(server: DatabaseServer) -> tuple[Any, Call]:
    client = server.connect(tcp=True)
    return client, lambda: client.get("key")


def _cassandra(server: DatabaseServer) -> tuple[Any, Call]:
    client = server.connect()
    statement = client.session.prepare("select key from system.local")
    return client, lambda: client.session.execute(statement)


def _pymongo(server: DatabaseServer) -> tuple[Any, Call]:
    client = server.connect()
    documents = client["bench"]["documents"]
    documents.insert_one({"_id": 1})
    return client, lambda: documents.find_one({"_id": 1})


@dataclass(frozen=True)
class Subject:
    """A driver: what starts its server, and what makes a connection and a call on it."""

    module: str
    starter: str
    connect: Callable[[DatabaseServer], tuple[Any, Call]]
    #: How long to measure, so that intervals are much narrower than the target. Drivers that send
    #: from a separate thread, or whose server collects garbage, need more calls.
    seconds: float

    def server(self) -> AbstractContextManager[DatabaseServer]:
        """The driver's server. Imported late: a driver may import modules that change the cost of
        others."""
        started: AbstractContextManager[DatabaseServer] = getattr(
            import_module(self.module), self.starter
        )()
        return started


#: By the driver's name.
SUBJECTS = {
    "pymysql": Subject("qjoule_studies.servers.mysql", "mariadb_server", _pymysql, 25),
    "psycopg": Subject("qjoule_studies.servers.postgres", "postgres_server", _psycopg, 25),
    "redis": Subject("qjoule_studies.servers.redis", "redis_server", _redis, 25),
    "cassandra": Subject("servers.databases", "cassandra_server", _cassandra, 100),
    "pymongo": Subject("servers.mongodb", "mongod_stand_in", _pymongo, 60),
}
