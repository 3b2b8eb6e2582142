# SPDX-License-Identifier: Apache-2.0
"""Servers, attach modes and queries. To add a server, add one entry to SUBJECTS."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from qjoule.contract import AttachMode
from qjoule_studies.servers.mysql import mariadb_server
from qjoule_studies.servers.postgres import postgres_server
from qjoule_studies.servers.process import DatabaseServer
from qjoule_studies.servers.redis import redis_server
from servers.databases import cassandra_server, mysql_server, voltdb_server
from servers.fetched.go_programs import ferretdb
from servers.mongodb import ferretdb_server, mongod_stand_in

#: CPU time that an attach mode may add to a query, in ns. An attach mode that is not listed has no
#: target.
LIMIT_NS = {AttachMode.SOCKET: 1000, AttachMode.SYMBOL: 2000}

Start = Callable[[], AbstractContextManager[DatabaseServer]]
#: Takes a connection of `DatabaseServer.connect`; returns a function that runs the query once.
Prepare = Callable[[Any], Callable[[], object]]


@dataclass(frozen=True)
class Subject:
    """A server, its attach modes, and a query that costs it little otherwise.

    `warm_up`: uncounted queries at the beginning, so that a JVM compiles its hot code.
    `turn_warm_up`: uncounted queries in each turn; 0 if a slice is enough. An agent that is loaded
    or unloaded changes a JVM's code, which the JVM then compiles again.
    """

    flavour: str
    attach_modes: tuple[AttachMode, ...]
    start: Start
    query: str
    prepare: Prepare
    version: str = ""  #: display name; empty: the name that discovery reports
    warm_up: int = 2000
    turn_warm_up: int = 0
    slow: bool = False  #: one query takes most of a millisecond, so fewer make a slice
    says: Prepare | None = None  #: the same query, with tags that `--client-tags` reads

    def with_client_tags(self) -> Iterator[tuple[str, Subject]]:
        """What `--client-tags` measures: queries without tags, and queries with tags."""
        yield "no tags", self
        if self.says is not None:
            yield "tags", replace(self, prepare=self.says)

    def name(self, attach_mode: AttachMode) -> str:
        return f"{self.flavour}:{attach_mode.name.lower()}"


def _mysql(connection: Any, comment: str = "") -> Callable[[], object]:
    return lambda: connection.query(f"SELECT 1{comment}")


def _postgres(connection: Any, comment: str = "") -> Callable[[], object]:
    cursor = connection.cursor()
    return lambda: cursor.execute(f"SELECT 1{comment}")


def _redis(client: Any) -> Callable[[], object]:
    return lambda: client.get("key:1")


def _mongodb(client: Any) -> Callable[[], object]:
    documents = client.shop.orders
    documents.insert_one({"_id": 1})
    return lambda: documents.find_one({"_id": 1})


def _cassandra(client: Any) -> Callable[[], object]:
    client.execute(
        "CREATE KEYSPACE bench WITH replication = {'class': 'SimpleStrategy', "
        "'replication_factor': 1}"
    )
    client.execute("CREATE TABLE bench.item (id int PRIMARY KEY)")
    client.execute("INSERT INTO bench.item (id) VALUES (1)")
    statement = client.session.prepare("SELECT id FROM bench.item WHERE id = ?")
    return lambda: client.execute(statement, (1,))


def _voltdb(client: Any) -> Callable[[], object]:
    client.sql("CREATE TABLE bench (id INTEGER NOT NULL PRIMARY KEY)")
    client.sql("PARTITION TABLE bench ON COLUMN id")
    return lambda: client.call("BENCH.select", 1)


def _plain_postgres() -> AbstractContextManager[DatabaseServer]:
    # Its own statistics would be a cost that not every server pays.
    return postgres_server("shared_preload_libraries=", "ssl=off")


def _plain_mysql() -> AbstractContextManager[DatabaseServer]:
    return mysql_server("--skip-ssl")


#: As sqlcommenter writes them.
_COMMENT = " /*endpoint='%2Fcheckout',tenant='42'*/"
_mysql_says, _postgres_says = (
    partial(_mysql, comment=_COMMENT),
    partial(_postgres, comment=_COMMENT),
)
_BOTH = (AttachMode.SOCKET, AttachMode.SYMBOL)
_FIND = "find orders {_id}"
_SELECT = "SELECT id FROM item WHERE id = ?"
_JVM_WARM_UP = 20_000
SUBJECTS = (
    Subject("mariadb", _BOTH, mariadb_server, "SELECT 1", _mysql, says=_mysql_says),
    Subject("mysql", _BOTH, _plain_mysql, "SELECT 1", _mysql, says=_mysql_says),
    Subject("postgres", _BOTH, _plain_postgres, "SELECT 1", _postgres, says=_postgres_says),
    Subject("redis", (AttachMode.SOCKET,), redis_server, "GET key:1", _redis),
    Subject("mongodb", _BOTH, mongod_stand_in, _FIND, _mongodb, version="stand-in"),
    Subject(
        "ferretdb",
        (AttachMode.STATISTICAL,),
        ferretdb_server,
        _FIND,
        _mongodb,
        slow=True,
        version=ferretdb.version.removeprefix("v"),
    ),
    Subject(
        "cassandra",
        (AttachMode.STATISTICAL,),
        cassandra_server,
        _SELECT,
        _cassandra,
        warm_up=_JVM_WARM_UP,
        slow=True,
    ),
    Subject(
        "cassandra",
        (AttachMode.AGENT,),
        cassandra_server,
        _SELECT,
        _cassandra,
        warm_up=_JVM_WARM_UP,
        slow=True,
        turn_warm_up=3000,
    ),
    Subject(
        "voltdb",
        (AttachMode.SYMBOL,),
        voltdb_server,
        "BENCH.select",
        _voltdb,
        warm_up=_JVM_WARM_UP,
        slow=True,
    ),
)
