# SPDX-License-Identifier: Apache-2.0
"""The Twitter pairs and go-ycsb on Redis.

The thesis did not measure Redis: these are its queries, and pipelining.
A tweet is a hash. Where other servers use an index, applications of Redis maintain keys themselves:
a set of tweets for each location, and a sorted set of users by number of tweets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import cached_property
from itertools import islice

import redis

from qjoule_studies import goycsb
from qjoule_studies.servers.redis import connect_target
from qjoule_studies.twitter import (
    LOADING,
    MARK,
    NOT_IN_THESIS,
    Calls,
    Rows,
    ServerOfCalls,
    mark_of,
)
from qjoule_studies.twitter.data import Row, Sizes, location_names, tweets
from qjoule_studies.workload import Target

_TWEET, _LOCATION, _USERS = "qjoule_tweet:", "qjoule_location:", "qjoule_users"
_FIELDS = ("user_id", "location", "created_at", "retweets", "text")
_BATCH = 1_000
_FETCHED = 100  #: tweets of one call of `pipeline`


class RedisServer(ServerOfCalls):
    """Redis."""

    errors = (redis.RedisError, OSError)

    def __init__(self, target: Target, sizes: Sizes) -> None:
        self._sizes = sizes
        self._names = location_names(sizes)
        self._client = connect_target(target, decode_responses=True)

    @cached_property
    def pairs(self) -> Mapping[str, Calls]:
        every = (
            Calls(
                "count",
                "count by location",
                "carried over from Table 5-1",
                ("every tweet is read", "a set for each location"),
                (self._count_all, self._count_set),
                ("", ""),
            ),
            Calls(
                "most_tweeted",
                "most tweeting user",
                "carried over from Table 5-3",
                ("every tweet is read", "a sorted set of users"),
                (self._most_of_all, self._most_of_set),
                ("", ""),
            ),
            Calls(
                "pipeline",
                f"{_FETCHED} tweets",
                NOT_IN_THESIS,
                ("one after the other", "in a pipeline"),
                (self._one_by_one, self._pipelined),
                ("", ""),
            ),
        )
        return {pair.name: pair for pair in every}

    def prepare(self, pair: str, form: str, seed: int) -> None:  # noqa: ARG002
        wanted = mark_of(self._sizes, seed)
        if self._client.get(MARK) == wanted:
            return
        self._client.set(MARK, LOADING)
        for pattern in (f"{_TWEET}*", f"{_LOCATION}*", _USERS):
            names = self._client.scan_iter(pattern, count=_BATCH)
            while batch := list(islice(names, _BATCH)):
                self._client.unlink(*batch)
        rows = tweets(self._sizes, seed)
        while batch_of_rows := list(islice(rows, _BATCH)):
            self._load(batch_of_rows)
        self._client.set(MARK, wanted)

    def _load(self, rows: list[Row]) -> None:
        pipe = self._client.pipeline(transaction=False)
        for number, *values in rows:
            named = dict(zip(_FIELDS, map(str, values), strict=True))
            pipe.hset(f"{_TWEET}{number}", mapping=named)
            pipe.sadd(f"{_LOCATION}{named['location']}", str(number))
            pipe.zincrby(_USERS, 1, named["user_id"])
        pipe.execute()

    def _every(self, field: str) -> Iterator[str]:
        """This field of every tweet."""
        for first in range(1, self._sizes.tweets + 1, _BATCH):
            pipe = self._client.pipeline(transaction=False)
            for number in range(first, min(first + _BATCH, self._sizes.tweets + 1)):
                pipe.hget(f"{_TWEET}{number}", field)
            yield from pipe.execute()

    def _location(self, number: int) -> str:
        return self._names[number % len(self._names)]

    def _count_all(self, number: int) -> Rows:
        name = self._location(number)
        return [sum(location == name for location in self._every("location"))]

    def _count_set(self, number: int) -> Rows:
        return [self._client.scard(f"{_LOCATION}{self._location(number)}")]

    def _most_of_all(self, _: int) -> Rows:
        counted = Counter(self._every("user_id"))
        # Members of equal score are in the order of their bytes, and this is the last of them.
        return [max((count, user) for user, count in counted.items())]

    def _most_of_set(self, _: int) -> Rows:
        ((user, count),) = self._client.zrevrange(_USERS, 0, 0, withscores=True)
        return [(int(count), user)]

    def _wanted(self, number: int) -> range:
        first = 1 + number * 7_919 % max(1, self._sizes.tweets - _FETCHED)
        return range(first, first + _FETCHED)

    def _one_by_one(self, number: int) -> Rows:
        return [self._client.hgetall(f"{_TWEET}{tweet}") for tweet in self._wanted(number)]

    def _pipelined(self, number: int) -> Rows:
        pipe = self._client.pipeline(transaction=False)
        for tweet in self._wanted(number):
            pipe.hgetall(f"{_TWEET}{tweet}")
        rows: Rows = pipe.execute()
        return rows


TWITTER = RedisServer


def _ycsb_properties(target: Target, threads: int) -> Mapping[str, object]:
    return {
        "redis.addr": f"{target.host}:{target.port}",
        "redis.pool_size": threads,
        "redis.datatype": "hash",
        "redis.username": target.user,
        "redis.password": target.password,
    }


def _ycsb_empty(target: Target) -> None:
    """Removes our keys alone: go-ycsb's own `dropdata` empties the whole database."""
    with closing(connect_target(target)) as client:
        for key in client.scan_iter(f"{goycsb.TABLE}/*", count=1_000):
            client.unlink(key)


YCSB = goycsb.Driver(
    "redis",
    _ycsb_properties,
    _ycsb_empty,
    (redis.RedisError,),
    scans=False,
    databases=frozenset({"0"}),
    other_database="go-ycsb is used with Redis's database 0 alone",
)
