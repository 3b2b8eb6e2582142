# SPDX-License-Identifier: Apache-2.0
"""The data set's tables in MariaDB, MySQL and PostgreSQL.

The tweets are stored twice. `tweets` has only its primary key; `indexed_tweets` also has an index
on the location and one on the user. The same query on both shows the effect of an index.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from qjoule_studies.twitter.data import Row, Sizes, locations, tweets, users

if TYPE_CHECKING:
    import psycopg
    import pymysql

_TABLES = """
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
_INDEXED = "INSERT INTO indexed_tweets SELECT * FROM tweets ORDER BY id"
TABLE_NAMES = ("locations", "users", "tweets", "indexed_tweets")

_BATCH = 2_000  #: rows in one INSERT


def load_mysql(connection: pymysql.Connection[Any], sizes: Sizes, seed: int) -> None:
    """Creates the tables of a MariaDB or MySQL and fills them.

    The same sizes and seed give the same rows.
    """
    with connection.cursor() as cursor:
        for statement in _TABLES.split(";"):
            cursor.execute(statement)
        for table, rows in _rows(sizes, seed).items():
            insert_mysql(cursor, table, rows)
        cursor.execute(_INDEXED)
        cursor.execute(f"ANALYZE TABLE {', '.join(TABLE_NAMES)}")
        cursor.fetchall()


def load_postgres(connection: psycopg.Connection[Any], sizes: Sizes, seed: int) -> None:
    """The same for a PostgreSQL; the connection is in autocommit."""
    tables = _TABLES.replace("DOUBLE", "DOUBLE PRECISION").replace("DATETIME", "TIMESTAMP")
    tables = tables.replace("LIKE tweets", "(LIKE tweets INCLUDING ALL)")
    for statement in tables.split(";")[:-1]:
        connection.execute(statement)
    for table, rows in _rows(sizes, seed).items():
        with connection.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
    connection.execute(_INDEXED)
    for column in ("location", "user_id"):
        connection.execute(f"CREATE INDEX ON indexed_tweets ({column})")
    for table in TABLE_NAMES:
        connection.execute(f"VACUUM ANALYZE {table}")


def insert_postgres(connection: psycopg.Connection[Any], table: str, rows: Iterator[Row]) -> None:
    """All of these rows; those that are there already are left out."""
    with connection.cursor() as cursor:
        while batch := list(islice(rows, _BATCH)):
            marks = ", ".join(["%s"] * len(batch[0]))
            cursor.executemany(
                f"INSERT INTO {table} VALUES ({marks}) ON CONFLICT DO NOTHING", batch
            )


def _rows(sizes: Sizes, seed: int) -> dict[str, Iterator[Row]]:
    return {
        "locations": locations(sizes, seed),
        "users": users(sizes, seed),
        "tweets": tweets(sizes, seed),
    }


def insert_mysql(cursor: pymysql.cursors.Cursor, table: str, rows: Iterator[Row]) -> None:
    """All of these rows; those that are there already are left out."""
    while batch := list(islice(rows, _BATCH)):
        marks = ", ".join(["%s"] * len(batch[0]))
        cursor.executemany(f"INSERT IGNORE INTO {table} VALUES ({marks})", batch)
