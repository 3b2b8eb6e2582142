# SPDX-License-Identifier: Apache-2.0
"""What clients do to a Cassandra in the tests, and how often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from cassandra.concurrent import execute_concurrent_with_args
from cassandra.query import BatchStatement

from qjoule_studies.servers.cassandra import Client
from qjoule_studies.servers.process import DatabaseServer
from tracing.recording import statements

REQUESTS = statements(2000)  #: prepared ones, of the first way
CONCURRENT = 64
KEYS = 100
#: How clients talk to the server: the driver's options.
WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"protocol_version": 5, "compression": "lz4"},
    {"protocol_version": 4, "compression": "lz4"},
    {"protocol_version": 4, "compression": "snappy"},
    {"protocol_version": 3, "compression": "snappy"},
)

INSERT = "insert into shop.orders(id, note) values (?+)"
SELECT = "select note from shop.orders where id = ?"
DELETE = "delete from shop.orders where id = ?"
COUNT = "update shop.visits set n = n + ? where id = ?"
OF_KEYSPACE = "select id from orders where id = ?"
BATCH = f"begin batch; {INSERT}; {DELETE}; apply batch"


@dataclass
class Story:
    """Executions by shape text, as the client counts them; and the server's counts meanwhile."""

    prepared: Counter[str] = field(default_factory=Counter)
    text: Counter[str] = field(default_factory=Counter)
    counted: Counter[str] = field(default_factory=Counter)


def set_up(client: Client) -> None:
    """The keyspaces `shop` and `Shop` with their tables."""
    for keyspace in ("shop", '"Shop"'):
        client.execute(
            f"create keyspace if not exists {keyspace} with replication ="
            " {'class': 'SimpleStrategy', 'replication_factor': 1}"
        )
        client.execute(
            f"create table if not exists {keyspace}.orders (id int primary key, note text)"
        )
    client.execute("create table if not exists shop.visits (id int primary key, n counter)")


def cql_metrics(client: Client) -> Counter[str]:
    """The server's own counts of statements, prepared and regular."""
    rows = client.execute("select name, value from system_views.cql_metrics")
    return Counter({row.name: int(row.value) for row in rows if row.name.endswith("_executed")})


def together(client: Client, statement: Any, arguments: Iterable[tuple[Any, ...]]) -> int:
    """Executes it once for each of the arguments, `CONCURRENT` at a time; returns the count."""
    done = execute_concurrent_with_args(
        client.session, statement, list(arguments), concurrency=CONCURRENT
    )
    return len(done)


def tell(server: DatabaseServer, referee: Client) -> Story:
    """Prepared statements, literals, counters and batches, in every way."""
    story = Story()
    before = cql_metrics(referee)
    for number, options in enumerate(WAYS):
        with server.connect(**options) as client:
            requests(client, story, REQUESTS // 2 if number == 0 else 150)
    for keyspace in ("shop", '"Shop"'):
        # Statements without a keyspace are prepared in that of USE: one text has two ids.
        with server.connect() as client:
            client.execute(f"USE {keyspace}")
            select = client.session.prepare("SELECT id FROM orders WHERE id = ?")
            story.prepared[OF_KEYSPACE] += together(client, select, ((i,) for i in range(50)))
    story.counted = cql_metrics(referee)
    story.counted.subtract(before)
    return story


def requests(client: Client, story: Story, times: int) -> None:
    """Prepared statements so many times, and some with literals and in batches."""
    insert = client.session.prepare("INSERT INTO shop.orders (id, note) VALUES (?, ?)")
    select = client.session.prepare("SELECT note FROM shop.orders WHERE id = ?")
    count = client.session.prepare("UPDATE shop.visits SET n = n + 1 WHERE id = ?")
    writes = ((i % KEYS, f"secret {i}" * 20) for i in range(times))
    story.prepared[INSERT] += together(client, insert, writes)
    story.prepared[SELECT] += together(client, select, ((i % KEYS,) for i in range(times)))
    story.prepared[COUNT] += together(client, count, ((i % KEYS,) for i in range(times)))
    for i in range(50):
        client.execute(f"SELECT note FROM shop.orders WHERE id = {i} /* secret */")
        client.execute(f"DELETE FROM shop.orders WHERE id = {i}")
    for i in range(20):
        batch = BatchStatement()
        for key in range(5):
            batch.add(insert, (key, "secret"))
        batch.add(f"DELETE FROM shop.orders WHERE id = {i}")
        client.execute(batch)
    story.text += Counter({SELECT: 50, DELETE: 50, BATCH: 20})
