"""Servers, rungs and queries. A server is added by one entry of TARGETS for each of its rungs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from qjoule.contract import Rung
from qjoule.servers.types import Flavour
from servers.mariadb import mariadb_server
from servers.mysql import mysql_server
from servers.postgres import postgres_server
from servers.process import DatabaseServer
from servers.redis import redis_server
from servers.voltdb import voltdb_server

#: CPU time that a rung may add to a query, in ns. A rung without one has no target.
LIMIT_NS = {Rung.SOCKET: 1000, Rung.SYMBOL: 3000}

Start = Callable[[], AbstractContextManager[DatabaseServer]]
#: Takes a connection of `DatabaseServer.connect`, returns what runs the query once.
Prepare = Callable[[Any], Callable[[], object]]


@dataclass(frozen=True)
class Target:
    """One server on one rung, and a query that costs it little besides."""

    flavour: Flavour
    rung: Rung
    start: Start
    query: str
    prepare: Prepare
    tcp: bool = False

    @property
    def name(self) -> str:
        return f"{self.flavour}:{self.rung.name.lower()}"


def _mysql(connection: Any) -> Callable[[], object]:
    return lambda: connection.query("SELECT 1")


def _postgres(connection: Any) -> Callable[[], object]:
    cursor = connection.cursor()
    return lambda: cursor.execute("SELECT 1")


def _redis(client: Any) -> Callable[[], object]:
    return lambda: client.get("key:1")


def _voltdb(client: Any) -> Callable[[], object]:
    client.sql("CREATE TABLE bench (id INTEGER NOT NULL PRIMARY KEY)")
    client.sql("PARTITION TABLE bench ON COLUMN id")
    return lambda: client.call("BENCH.select", 1)


def _plain_postgres() -> AbstractContextManager[DatabaseServer]:
    # Statistics of its own would be a cost that not every server pays.
    return postgres_server("shared_preload_libraries=", "ssl=off")


def _plain_mysql() -> AbstractContextManager[DatabaseServer]:
    return mysql_server("--skip-ssl")


TARGETS = (
    Target(Flavour.MARIADB, Rung.SOCKET, mariadb_server, "SELECT 1", _mysql),
    Target(Flavour.MARIADB, Rung.SYMBOL, mariadb_server, "SELECT 1", _mysql),
    Target(Flavour.MYSQL, Rung.SOCKET, _plain_mysql, "SELECT 1", _mysql),
    Target(Flavour.MYSQL, Rung.SYMBOL, _plain_mysql, "SELECT 1", _mysql),
    Target(Flavour.POSTGRES, Rung.SOCKET, _plain_postgres, "SELECT 1", _postgres),
    Target(Flavour.POSTGRES, Rung.SYMBOL, _plain_postgres, "SELECT 1", _postgres),
    Target(Flavour.REDIS, Rung.SOCKET, redis_server, "GET key:1", _redis),
    Target(Flavour.VOLTDB, Rung.SYMBOL, voltdb_server, "BENCH.select", _voltdb),
)
