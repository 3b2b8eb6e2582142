# SPDX-License-Identifier: Apache-2.0
"""Requests to a Cassandra, 64 at a time, as the golden traces have them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from cassandra.concurrent import execute_concurrent
from cassandra.query import BatchStatement, BatchType, SimpleStatement

from servers.cassandra import Client
from tracing import long_runs

STATEMENTS = long_runs.statements(6000)  #: in one story
CONCURRENT = 64
KEYSPACE = "story"

INSERT = "INSERT INTO story.people (id, name) VALUES (?, ?)"
SELECT = "SELECT name FROM story.people WHERE id = ?"
COUNT = "UPDATE story.visits SET n = n + 1 WHERE id = ?"

#: The shapes that qjoule shows for them.
INSERT_SHAPE = "insert into story.people(id, name) values (?+)"
SELECT_SHAPE = "select name from story.people where id = ?"
AGE_SHAPE = "update story.people set age = ? where id = ?"
COUNT_SHAPE = "update story.visits set n = n + ? where id = ?"


@dataclass
class Story:
    """How often each request was sent, by kind."""

    prepared: Counter[str] = field(default_factory=Counter)  #: by shape
    text: Counter[str] = field(default_factory=Counter)  #: by shape
    batches: int = 0


def make_tables(client: Client) -> None:
    replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    client.execute(f"CREATE KEYSPACE IF NOT EXISTS {KEYSPACE} WITH replication = {replication}")
    client.execute(
        "CREATE TABLE IF NOT EXISTS story.people (id int PRIMARY KEY, name text, age int)"
    )
    client.execute("CREATE TABLE IF NOT EXISTS story.visits (id int PRIMARY KEY, n counter)")


def tell(client: Client, statements: int = STATEMENTS) -> Story:
    """Sends them, 64 at a time and mixed; all are answered when this returns."""
    prepared = {
        INSERT_SHAPE: client.session.prepare(INSERT),
        SELECT_SHAPE: client.session.prepare(SELECT),
        COUNT_SHAPE: client.session.prepare(COUNT),
    }
    story = Story()

    def requests() -> Iterator[tuple[object, object]]:
        for i in range(statements):
            kind = i % 6
            if kind == 0:
                story.prepared[INSERT_SHAPE] += 1
                yield prepared[INSERT_SHAPE], (i, f"name {i}")
            elif kind == 1:
                story.prepared[COUNT_SHAPE] += 1
                yield prepared[COUNT_SHAPE], (i % 100,)
            elif kind == 2:
                story.text[AGE_SHAPE] += 1
                yield SimpleStatement(f"UPDATE story.people SET age = {i} WHERE id = {i}"), None
            elif kind == 3:
                story.text[SELECT_SHAPE] += 1
                yield SimpleStatement(f"SELECT name FROM story.people WHERE id = {i}"), None
            elif kind == 4 and i % 12 == 4:
                story.batches += 1
                batch = BatchStatement(BatchType.UNLOGGED)
                batch.add(prepared[INSERT_SHAPE], (i, "one"))
                batch.add(prepared[INSERT_SHAPE], (i, "two"))
                batch.add(SimpleStatement(f"DELETE FROM story.people WHERE id = {i + 1}"))
                yield batch, None
            else:
                story.prepared[SELECT_SHAPE] += 1
                yield prepared[SELECT_SHAPE], (i,)

    for done, result in execute_concurrent(client.session, requests(), CONCURRENT):
        assert done, result
    return story
