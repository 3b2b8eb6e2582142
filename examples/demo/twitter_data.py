"""A seeded, Twitter-like data set: locations, users and tweets.

The tweets are there twice. `tweets` has its primary key alone, `indexed_tweets` also an index on
the location and one on the user: the same question to both shows what an index is worth.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate, islice, product
from typing import TypeAlias

import pymysql

Row: TypeAlias = tuple[object, ...]

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

TWEETS_PER_USER = 20
TWEETS_PER_LOCATION = 50
MOST_LOCATIONS = 8_000  #: names of three syllables out of twenty
_BATCH = 2_000  #: rows in one INSERT

_PARTS_OF_NAMES = """
ba co da el fi go ha in jo ka lu mo na or pe ri sa to ur ve
"""
_SYLLABLES = tuple(_PARTS_OF_NAMES.split())
_COUNTRIES = ("Brazil", "Canada", "Estonia", "France", "Ghana", "India", "Japan", "Kenya", "Peru")
_TEXT = """
about after again and are at away back because been before but can coffee come could day did do
down early every few for from game get go going good got great had has have here home how just
know last late left like little live long look love made make many match more morning music never
new news next night not now of off on one only our out over people play rain read right see since
so some soon still sun take than that the then there they think this time today tonight too train
under until up very waiting walk was way we week well were what when where who why will with work
"""
_WORDS = tuple(_TEXT.split())


@dataclass(frozen=True)
class Sizes:
    """How many rows each table has."""

    tweets: int

    @property
    def users(self) -> int:
        return max(20, self.tweets // TWEETS_PER_USER)

    @property
    def locations(self) -> int:
        return min(MOST_LOCATIONS, max(20, self.tweets // TWEETS_PER_LOCATION))


def load(connection: pymysql.Connection, sizes: Sizes, seed: int) -> None:
    """Creates the tables and fills them. The same sizes and seed give the same rows."""
    with connection.cursor() as cursor:
        for statement in TABLES.split(";"):
            cursor.execute(statement)
        _insert(cursor, "locations", locations(sizes, seed))
        _insert(cursor, "users", users(sizes, seed))
        _insert(cursor, "tweets", tweets(sizes, seed))
        cursor.execute(INDEXED)
        cursor.execute(f"ANALYZE TABLE {', '.join(TABLE_NAMES)}")
        cursor.fetchall()


def location_names(sizes: Sizes) -> list[str]:
    """The names of all locations, in the order of the table."""
    spelled = product(_SYLLABLES, repeat=3)
    # A stride that shares no factor with their number visits each name once, well mixed.
    names = ["".join(syllables).capitalize() for syllables in spelled]
    return [names[i * 3_001 % len(names)] for i in range(sizes.locations)]


def locations(sizes: Sizes, seed: int) -> Iterator[Row]:
    """Rows of `locations`."""
    chance = random.Random(f"locations {seed}")
    for name in location_names(sizes):
        yield name, chance.choice(_COUNTRIES), chance.uniform(-60, 70), chance.uniform(-180, 180)


def users(sizes: Sizes, seed: int) -> Iterator[Row]:
    """Rows of `users`."""
    chance = random.Random(f"users {seed}")
    names = location_names(sizes)
    for number in range(1, sizes.users + 1):
        followers = int(chance.paretovariate(0.8)) % 1_000_000
        handle = f"{chance.choice(_WORDS)}_{number}"
        yield number, handle, chance.choice(names), followers, _sentence(chance, 10, 20)


def tweets(sizes: Sizes, seed: int) -> Iterator[Row]:
    """Rows of `tweets`: a few users write much, most write little."""
    chance = random.Random(f"tweets {seed}")
    names = location_names(sizes)
    activity = list(accumulate(1 / rank**0.6 for rank in range(1, sizes.users + 1)))
    writers = chance.choices(range(1, sizes.users + 1), cum_weights=activity, k=sizes.tweets)
    when = datetime(2020, 1, 1)
    for number, writer in enumerate(writers, 1):
        when += timedelta(seconds=chance.randrange(1, 240))
        retweets = int(chance.paretovariate(0.7)) % 100_000
        yield number, writer, chance.choice(names), when, retweets, _sentence(chance, 6, 24)


def _sentence(chance: random.Random, least: int, most: int) -> str:
    return " ".join(chance.choices(_WORDS, k=chance.randint(least, most)))


def _insert(cursor: pymysql.cursors.Cursor, table: str, rows: Iterator[Row]) -> None:
    while batch := list(islice(rows, _BATCH)):
        marks = ", ".join(["%s"] * len(batch[0]))
        cursor.executemany(f"INSERT INTO {table} VALUES ({marks})", batch)
