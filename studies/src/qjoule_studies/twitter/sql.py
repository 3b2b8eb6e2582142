# SPDX-License-Identifier: Apache-2.0
"""The pairs in SQL, and their tables.

The tweets are stored twice. `tweets` has only its primary key; `indexed_tweets` also has an index
on the location and one on the user. The same query on both shows the effect of an index.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from qjoule.api import QjouleError
from qjoule_studies.twitter import DATABASE, FORMS, LOADING, MARK, Rows, mark_of
from qjoule_studies.twitter.data import Row, Sizes, location_names, locations, tweets, users
from qjoule_studies.twitter.sql_pairs import Form, Pair, more_pairs, query_pairs
from qjoule_studies.workload import Target

TABLES = """
CREATE TABLE locations (
    name VARCHAR(24) PRIMARY KEY, country VARCHAR(24) NOT NULL,
    latitude DOUBLE NOT NULL, longitude DOUBLE NOT NULL);
CREATE TABLE users (
    id INT PRIMARY KEY, screen_name VARCHAR(24) NOT NULL, location VARCHAR(24) NOT NULL,
    followers INT NOT NULL, description VARCHAR(160) NOT NULL);
CREATE TABLE tweets (
    id INT PRIMARY KEY, user_id INT NOT NULL, location VARCHAR(24) NOT NULL,
    created_at DATETIME NOT NULL, retweets INT NOT NULL, text VARCHAR(280) NOT NULL);
CREATE TABLE indexed_tweets LIKE tweets;
ALTER TABLE indexed_tweets ADD INDEX (location), ADD INDEX (user_id)
"""
INDEXED = "INSERT INTO indexed_tweets SELECT * FROM tweets ORDER BY id"
TABLE_NAMES = ("locations", "users", "tweets", "indexed_tweets")

BATCH = 2_000  #: rows in one INSERT

_LOCATION = 2  #: where it is in a row of tweets


class SqlServer:
    """What the dialects have in common; the rest is in the methods that are not here."""

    errors: tuple[type[Exception], ...] = ()

    def __init__(self, target: Target, sizes: Sizes) -> None:
        self._target, self._sizes = target, sizes
        self._database = target.database or DATABASE
        self._connection = self._connect()
        self._cursor = self._connection.cursor()
        self._pair: Pair | None = None
        self._form: Form | None = None

    @property
    def pairs(self) -> Mapping[str, Pair]:
        every = chain(query_pairs(self._sizes), more_pairs(self._sizes))
        return {pair.name: pair for pair in every}

    def prepare(self, pair: str, form: str, seed: int) -> None:
        wanted, mark = mark_of(self._sizes, seed), self._mark()
        if mark == wanted:
            if pair == "delete":
                self._restore("indexed_tweets" if form == "better" else "tweets", seed)
            return
        self._clear(ours=mark is not None)
        self._execute(f"CREATE TABLE {MARK} (mark VARCHAR(100))")
        self._execute(f"INSERT INTO {MARK} VALUES (%s)", (LOADING,))
        self._load(seed)
        self._execute(f"UPDATE {MARK} SET mark = %s", (wanted,))

    def open(self, pair: str, form: str, seed: int) -> None:  # noqa: ARG002
        self._pair = self.pairs[pair]
        self._form = self._pair.forms[FORMS.index(form)]

    def call(self, number: int) -> Rows:
        assert self._pair is not None and self._form is not None, "open() comes first"
        literals = self._form.literals or self._pair.literals
        self._cursor.execute(self._form.sql, literals(number))
        if self._cursor.description is None:
            return [(self._cursor.rowcount,)]
        rows: Rows = self._cursor.fetchall()
        return rows

    def close(self) -> None:
        self._connection.close()

    def _mark(self) -> str | None:
        """None if there is no such table."""
        if MARK not in self._tables():
            return None
        self._execute(f"SELECT mark FROM {MARK}")
        rows = self._cursor.fetchall()
        return str(rows[0][0]) if rows else LOADING

    def _clear(self, *, ours: bool) -> None:
        """Drops our tables. Raises QjouleError if qjoule did not make them."""
        tables = self._tables()
        if foreign := [] if ours else [name for name in TABLE_NAMES if name in tables]:
            raise QjouleError(
                f"database {self._database} has a table {foreign[0]} that qjoule did not make: "
                "name another database"
            )
        for table in (*TABLE_NAMES, MARK):
            self._execute(f"DROP TABLE IF EXISTS {table}")

    def _restore(self, table: str, seed: int) -> None:
        """Inserts what deletions have taken away."""
        self._execute(f"SELECT COUNT(*) FROM {table}")
        if self._cursor.fetchall()[0][0] == self._sizes.tweets:
            return
        names = location_names(self._sizes)
        deleted = set(names[len(names) // 2 :])
        self._insert(table, (row for row in tweets(self._sizes, seed) if row[_LOCATION] in deleted))

    def _execute(self, statement: str, literals: tuple[object, ...] = ()) -> None:
        self._cursor.execute(statement, literals or None)

    def _tables(self) -> frozenset[str]:
        """Names of all tables of the database that statements find without a qualifier."""
        self._execute(
            f"SELECT table_name FROM information_schema.tables WHERE table_schema = {self._schema}"
        )
        return frozenset(str(row[0]) for row in self._cursor.fetchall())

    _schema = "DATABASE()"

    def _connect(self) -> Any:
        raise NotImplementedError

    def _load(self, seed: int) -> None:
        raise NotImplementedError

    def _insert(self, table: str, rows: Iterator[Row]) -> None:
        raise NotImplementedError


def tables_of(sizes: Sizes, seed: int) -> dict[str, Iterator[Row]]:
    """The rows of each table but `indexed_tweets`. The same sizes and seed give the same rows."""
    return {
        "locations": locations(sizes, seed),
        "users": users(sizes, seed),
        "tweets": tweets(sizes, seed),
    }
