# SPDX-License-Identifier: Apache-2.0
"""The Twitter pairs and go-ycsb on Cassandra: tables that differ in row cache, compaction or index.

The thesis finds the most tweeting user with a user-defined function in the server. Here the server
groups by partition and the client takes the largest group, because Cassandra cannot order groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial
from itertools import islice
from typing import Any

from cassandra import DriverException, RequestExecutionException
from cassandra.cluster import NoHostAvailable
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.query import tuple_factory

from qjoule.api import QjouleError
from qjoule_studies import goycsb
from qjoule_studies.servers.cassandra import connect_target
from qjoule_studies.twitter import (
    DATABASE,
    FORMS,
    LOADING,
    MARK,
    NOT_IN_THESIS,
    Calls,
    Rows,
    mark_of,
)
from qjoule_studies.twitter.data import Row, Sizes, location_names, tweets
from qjoule_studies.workload import Target

PLAIN, CACHED, LEVELLED, INDEXED = (
    f"qjoule_{kind}_tweets" for kind in ("plain", "cached", "levelled", "indexed")
)
_CACHED_ROWS = "caching = {'keys': 'ALL', 'rows_per_partition': 'ALL'}"
_LEVELS = "compaction = {'class': 'LeveledCompactionStrategy', 'sstable_size_in_mb': 4}"
_TIERS = "compaction = {'class': 'SizeTieredCompactionStrategy'}"
#: Data must be in several files, so memtables are flushed every second.
_FLUSHED = "memtable_flush_period_in_ms = 1000"
_OPTIONS = {
    PLAIN: _TIERS,
    CACHED: f"{_TIERS} AND {_CACHED_ROWS}",
    LEVELLED: _LEVELS,
    INDEXED: _TIERS,
}
_COLUMNS = "id, user_id, location, created_at, retweets, text"
_BATCH = 1_000
_TWEETS_KEPT = 1_000  #: tweets that updates are about


class CassandraServer:
    """Cassandra."""

    errors = (DriverException, RequestExecutionException, NoHostAvailable)

    def __init__(self, target: Target, sizes: Sizes) -> None:
        self._sizes = sizes
        self._names = location_names(sizes)
        self._cluster, self._session = connect_target(target, DATABASE)
        self._session.row_factory = tuple_factory
        self._tweets: list[Row] = []
        self._call: Any = None
        self._statement: Any = None

    @cached_property
    def pairs(self) -> Mapping[str, Calls]:
        every = (
            _pair("update", "update a tweet", "Table 7-1", self._update, (PLAIN, CACHED)),
            _pair("search", "tweets of a user", "Table 7-2", self._search, (PLAIN, CACHED)),
            _pair("insert", "insert a tweet", "Table 7-3", self._insert, (LEVELLED, PLAIN)),
            _pair("most_tweeted", "most tweeting user", "Table 7-4", self._most, (PLAIN, LEVELLED)),
            _pair(
                "secondary_index",
                "tweets of a location",
                NOT_IN_THESIS,
                self._of_location,
                (PLAIN, INDEXED),
            ),
        )
        return {pair.name: pair for pair in every}

    def prepare(self, pair: str, form: str, seed: int) -> None:
        table = self.pairs[pair].uses[FORMS.index(form)]
        if table == CACHED:
            self._check_row_cache()
        self._session.execute(
            f"CREATE TABLE IF NOT EXISTS {MARK} (name text PRIMARY KEY, mark text)"
        )
        wanted = mark_of(self._sizes, seed)
        mark = self._session.execute(f"SELECT mark FROM {MARK} WHERE name = %s", (table,)).one()
        if mark and mark[0] == wanted and pair != "insert":
            return
        if mark and mark[0] == wanted and self._count(table) == self._sizes.tweets:
            return
        self._set_mark(table, LOADING)
        self._create(table)
        insert = self._session.prepare(f"INSERT INTO {table} ({_COLUMNS}) VALUES (?,?,?,?,?,?)")
        rows = tweets(self._sizes, seed)
        while batch := list(islice(rows, _BATCH)):
            execute_concurrent_with_args(self._session, insert, batch, concurrency=50)
        self._set_mark(table, wanted)

    def open(self, pair: str, form: str, seed: int) -> None:
        place = FORMS.index(form)
        table = self.pairs[pair].uses[place]
        self._tweets = list(islice(tweets(self._sizes, seed), _TWEETS_KEPT))
        text = _STATEMENTS[pair].format(table)
        if pair == "secondary_index" and table == PLAIN:
            text += " ALLOW FILTERING"
        self._statement = self._session.prepare(text)
        self._call = self.pairs[pair].calls[place]

    def call(self, number: int) -> Rows:
        rows: Rows = self._call(number)
        return rows

    def close(self) -> None:
        self._cluster.shutdown()

    def _create(self, table: str) -> None:
        self._session.execute(f"DROP TABLE IF EXISTS {table}")
        self._session.execute(
            f"CREATE TABLE {table} (user_id int, id int, location text, created_at timestamp, "
            "retweets int, text text, PRIMARY KEY (user_id, id)) "
            f"WITH {_OPTIONS[table]} AND {_FLUSHED}"
        )
        if table == INDEXED:
            self._session.execute(f"CREATE INDEX ON {table} (location)")

    def _check_row_cache(self) -> None:
        row = self._session.execute(
            "SELECT value FROM system_views.settings WHERE name = 'row_cache_size'"
        ).one()
        if row is not None and str(row[0]).lower() in ("0", "0b", "0mib", "null"):
            raise QjouleError(
                "this Cassandra has no row cache: start it with row_cache_size: 64MiB"
            )

    def _set_mark(self, table: str, mark: str) -> None:
        self._session.execute(f"INSERT INTO {MARK} (name, mark) VALUES (%s, %s)", (table, mark))

    def _count(self, table: str) -> int:
        return int(self._session.execute(f"SELECT COUNT(*) FROM {table}").one()[0])

    def _rows(self, *literals: object) -> Rows:
        return list(self._session.execute(self._statement, literals))

    def _update(self, number: int) -> Rows:
        tweet, user = self._tweets[number % len(self._tweets)][:2]
        return self._rows(number, user, tweet)

    def _search(self, number: int) -> Rows:
        return self._rows(self._tweets[number % len(self._tweets)][1])

    def _insert(self, number: int) -> Rows:
        row = self._tweets[number % len(self._tweets)]
        return self._rows(self._sizes.tweets + 1 + number, *row[1:])

    def _most(self, _: int) -> Rows:
        return [max((count, user) for user, count in self._rows())]

    def _of_location(self, number: int) -> Rows:
        return self._rows(self._names[number % len(self._names)])


_STATEMENTS = {
    "update": "UPDATE {} SET retweets = ? WHERE user_id = ? AND id = ?",
    "search": f"SELECT {_COLUMNS} FROM {{}} WHERE user_id = ?",
    "insert": f"INSERT INTO {{}} ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)",
    "most_tweeted": "SELECT user_id, COUNT(*) FROM {} GROUP BY user_id",
    "secondary_index": "SELECT id, user_id FROM {} WHERE location = ?",
}
_LABELS = {
    (PLAIN, CACHED): ("without a row cache", "with a row cache"),
    (LEVELLED, PLAIN): ("levelled compaction", "size-tiered compaction"),
    (PLAIN, LEVELLED): ("size-tiered compaction", "levelled compaction"),
    (PLAIN, INDEXED): ("filtered", "with a secondary index"),
}


def _pair(name: str, title: str, source: str, call: Any, tables: tuple[str, str]) -> Calls:
    return Calls(name, title, source, _LABELS[tables], (partial(call), partial(call)), tables)


TWITTER = CassandraServer


def _ycsb_properties(target: Target, threads: int) -> Mapping[str, object]:
    return {
        "cassandra.cluster": f"{target.host}:{target.port}",
        "cassandra.keyspace": target.database or goycsb.DATABASE,
        "cassandra.connections": threads,
        **({"cassandra.username": target.user} if target.user else {}),
        **({"cassandra.password": target.password} if target.password else {}),
    }


def _ycsb_empty(target: Target) -> None:
    cluster, session = connect_target(target, goycsb.DATABASE)
    try:
        session.execute(f"DROP TABLE IF EXISTS {goycsb.TABLE}")
    finally:
        cluster.shutdown()


YCSB = goycsb.Driver(
    "cassandra",
    _ycsb_properties,
    _ycsb_empty,
    (DriverException, RequestExecutionException, NoHostAvailable),
    scans=False,
)
