# SPDX-License-Identifier: Apache-2.0
"""Requests to a Cassandra, 64 at a time and mixed, as the golden traces have them."""

from __future__ import annotations

from collections.abc import Iterator

from cassandra.concurrent import execute_concurrent
from cassandra.query import BatchStatement, BatchType, SimpleStatement

from servers.cassandra import Client

CONCURRENT = 64


def make_tables(client: Client) -> None:
    replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    client.execute(f"CREATE KEYSPACE IF NOT EXISTS story WITH replication = {replication}")
    client.execute(
        "CREATE TABLE IF NOT EXISTS story.people (id int PRIMARY KEY, name text, age int)"
    )
    client.execute("CREATE TABLE IF NOT EXISTS story.visits (id int PRIMARY KEY, n counter)")


def tell(client: Client, statements: int) -> None:
    """Sends this many; all are answered when this returns."""
    insert = client.session.prepare("INSERT INTO story.people (id, name) VALUES (?, ?)")
    select = client.session.prepare("SELECT name FROM story.people WHERE id = ?")
    count = client.session.prepare("UPDATE story.visits SET n = n + 1 WHERE id = ?")

    def requests() -> Iterator[tuple[object, object]]:
        for i in range(statements):
            kind = i % 6
            if kind == 0:
                yield insert, (i, f"name {i}")
            elif kind == 1:
                yield count, (i % 100,)
            elif kind == 2:
                yield SimpleStatement(f"UPDATE story.people SET age = {i} WHERE id = {i}"), None
            elif kind == 3:
                yield SimpleStatement(f"SELECT name FROM story.people WHERE id = {i}"), None
            elif kind == 4 and i % 12 == 4:
                batch = BatchStatement(BatchType.UNLOGGED)
                batch.add(insert, (i, "one"))
                batch.add(insert, (i, "two"))
                batch.add(SimpleStatement(f"DELETE FROM story.people WHERE id = {i + 1}"))
                yield batch, None
            else:
                yield select, (i,)

    for done, result in execute_concurrent(client.session, requests(), CONCURRENT):
        assert done, result
