# SPDX-License-Identifier: Apache-2.0
"""What clients do to a Cassandra in the tests, and how often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from cassandra.concurrent import execute_concurrent_with_args
from cassandra.query import BatchStatement

from servers.cassandra import Client
from servers.process import DatabaseServer
from tracing import long_runs

REQUESTS = long_runs.statements(2000)  #: in one story
CONCURRENT = 64
KEYS = 100

INSERT = "insert into shop.orders(id, note) values (?+)"
SELECT = "select note from shop.orders where id = ?"
DELETE = "delete from shop.orders where id = ?"


@dataclass
class Story:
    """Executions by shape text, as the client counts them."""

    calls: Counter[str] = field(default_factory=Counter)
    counted: Counter[str] = field(default_factory=Counter)  #: the server's counts meanwhile


def set_up(client: Client) -> None:
    """The keyspace `shop` and its table."""
    client.execute(
        "create keyspace if not exists shop with replication ="
        " {'class': 'SimpleStrategy', 'replication_factor': 1}"
    )
    client.execute("create table if not exists shop.orders (id int primary key, note text)")


def cql_metrics(client: Client) -> Counter[str]:
    """The server's own counts of statements, prepared and regular."""
    rows = client.execute("select name, value from system_views.cql_metrics")
    return Counter({row.name: int(row.value) for row in rows if row.name.endswith("_executed")})


def together(client: Client, statement: Any, arguments: Iterable[tuple[Any, ...]]) -> int:
    """Executes it once for each of the arguments, `CONCURRENT` at a time; returns how often."""
    done = execute_concurrent_with_args(
        client.session, statement, list(arguments), concurrency=CONCURRENT
    )
    return len(done)


def tell(server: DatabaseServer, referee: Client, **options: Any) -> Story:
    """Runs prepared reads and writes, literals, batches; `options` are the driver's."""
    story = Story()
    before = cql_metrics(referee)
    with server.connect(**options) as client:
        insert = client.session.prepare("INSERT INTO shop.orders (id, note) VALUES (?, ?)")
        select = client.session.prepare("SELECT note FROM shop.orders WHERE id = ?")
        half = REQUESTS // 2
        writes = ((i % KEYS, f"secret {i}") for i in range(half))
        story.calls[INSERT] += together(client, insert, writes)
        story.calls[SELECT] += together(client, select, ((i % KEYS,) for i in range(half)))
        for i in range(100):
            client.execute(f"SELECT note FROM shop.orders WHERE id = {i} /* secret */")
            client.execute(f"DELETE FROM shop.orders WHERE id = {i}")
        story.calls[SELECT] += 100
        story.calls[DELETE] += 100
        for i in range(50):
            batch = BatchStatement()
            for key in range(5):
                batch.add(insert, (key, "secret"))
            batch.add(f"DELETE FROM shop.orders WHERE id = {i}")
            client.execute(batch)
        story.calls[f"begin batch; {INSERT}; {DELETE}; apply batch"] += 50
        client.execute(f"INSERT INTO shop.orders (id, note) VALUES (1, '{'secret ' * 9000}')")
        story.calls["insert into shop.orders(id, note) values (?+…"] += 1
    story.counted = cql_metrics(referee)
    story.counted.subtract(before)
    return story
