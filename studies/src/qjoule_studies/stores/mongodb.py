# SPDX-License-Identifier: Apache-2.0
"""The Twitter pairs and go-ycsb on MongoDB, and on what speaks its protocol.

A tweet is a document with its user, hashtags and mentioned users in it, as Twitter gives them.
Sharding (the thesis's Table 6-6) needs several servers, and has no pair here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import cached_property, partial
from itertools import islice
from typing import Any

import pymongo
import pymongo.errors

from qjoule_studies import goycsb
from qjoule_studies.servers.mongodb import connect_target
from qjoule_studies.twitter import (
    DATABASE,
    FORMS,
    LOADING,
    MARK,
    Calls,
    Rows,
    ServerOfCalls,
    mark_of,
)
from qjoule_studies.twitter.data import Sizes, location_names, mentions, tweets
from qjoule_studies.workload import Target

PLAIN, INDEXED = "qjoule_tweets", "qjoule_indexed_tweets"
_INDEXES = ("user.location", "user_mentions.id")
_BATCH = 1_000
_BULK = 50  #: updates in one bulk; FerretDB 1.24 never answers one of 100
_LONGEST_S = 600.0
Document = dict[str, Any]


class MongodbServer(ServerOfCalls):
    """mongod, FerretDB."""

    errors = (pymongo.errors.PyMongoError,)

    def __init__(self, target: Target, sizes: Sizes) -> None:
        self._sizes = sizes
        self._names = location_names(sizes)
        client = self._client = connect_target(target, _LONGEST_S)
        self._database = client[target.database or DATABASE]
        client.admin.command("ping")

    @cached_property
    def pairs(self) -> Mapping[str, Calls]:
        people = list(range(1, self._sizes.users + 1))[:: max(1, self._sizes.users // 200)]
        both = (PLAIN, INDEXED)
        every = (
            Calls(
                "covered",
                "tweets of a location",
                "Table 6-1",
                ("without an index", "covered by an index"),
                (self._of_location, self._of_location_covered),
                both,
                same_rows=False,  # of the same tweets, but not all of their fields
            ),
            Calls(
                "delete",
                "delete by a mentioned user",
                "Table 6-2",
                ("without an index", "with an index"),
                (partial(self._delete, PLAIN, people), partial(self._delete, INDEXED, people)),
                both,
                most_calls=len(people),
            ),
            Calls(
                "insert",
                "insert a tweet",
                "Table 6-3",
                ("without an index", "with an index"),
                (partial(self._insert, PLAIN), partial(self._insert, INDEXED)),
                both,
            ),
            Calls(
                "bulk",
                f"{_BULK} updates at once",
                "Table 6-4",
                ("unordered", "ordered"),
                (partial(self._update, False), partial(self._update, True)),
                (PLAIN, PLAIN),
            ),
            Calls(
                "most_tweeted",
                "most mentioned user",
                "Table 6-5",
                ("counted by the client", "aggregated by the server"),
                (self._most_mentioned, self._most_mentioned_aggregated),
                (PLAIN, PLAIN),
            ),
        )
        return {pair.name: pair for pair in every}

    def prepare(self, pair: str, form: str, seed: int) -> None:
        """The collection that the form uses, with its indexes."""
        name = self.pairs[pair].uses[FORMS.index(form)]
        wanted = mark_of(self._sizes, seed)
        marked = self._database[MARK].find_one({"_id": name})
        if marked and marked["mark"] == wanted and self._restored(name, pair, seed):
            return
        self._database[name].drop()
        self._set_mark(name, LOADING)
        if name == INDEXED:
            for field in _INDEXES:
                self._database[name].create_index(field)
        rows = documents(self._sizes, seed)
        while batch := list(islice(rows, _BATCH)):
            self._database[name].insert_many(batch)
        self._set_mark(name, wanted)

    def _set_mark(self, name: str, mark: str) -> None:
        self._database[MARK].replace_one({"_id": name}, {"_id": name, "mark": mark}, upsert=True)

    def _restored(self, name: str, pair: str, seed: int) -> bool:
        """Removes what runs have inserted, and inserts what they have deleted."""
        collection = self._database[name]
        if pair == "insert":
            collection.delete_many({"_id": {"$gt": self._sizes.tweets}})
        if pair == "delete" and collection.count_documents({}) < self._sizes.tweets:
            present = {document["_id"] for document in collection.find({}, {"_id": 1})}
            lost = (
                document
                for document in documents(self._sizes, seed)
                if document["_id"] not in present
            )
            while batch := list(islice(lost, _BATCH)):
                collection.insert_many(batch)
        return collection.count_documents({}) >= self._sizes.tweets

    def _location(self, number: int) -> str:
        return self._names[number % len(self._names)]

    def _of_location(self, number: int) -> Rows:
        return list(self._database[PLAIN].find({"user.location": self._location(number)}))

    def _of_location_covered(self, number: int) -> Rows:
        wanted = {"user.location": self._location(number)}
        return list(self._database[INDEXED].find(wanted, {"_id": 0, "user.location": 1}))

    def _delete(self, name: str, people: list[int], number: int) -> Rows:
        done = self._database[name].delete_many({"user_mentions.id": people[number]})
        return [done.deleted_count]

    def _insert(self, name: str, number: int) -> Rows:
        document = {
            "_id": self._sizes.tweets + 1 + number,
            "user": {"id": 1, "location": self._location(number)},
            "retweets": 0,
            "text": "a tweet that a run has inserted",
            "hashtags": [],
            "user_mentions": [{"id": 1, "screen_name": "user_1"}],
        }
        return [self._database[name].insert_one(document).inserted_id]

    def _update(self, ordered: bool, number: int) -> Rows:
        first = number * _BULK % max(1, self._sizes.tweets - _BULK)
        changes = [
            pymongo.UpdateOne({"_id": tweet}, {"$set": {"retweets": number}})
            for tweet in range(first + 1, first + 1 + _BULK)
        ]
        return [self._database[PLAIN].bulk_write(changes, ordered=ordered).matched_count]

    def _most_mentioned(self, _: int) -> Rows:
        counted = Counter(
            person["screen_name"]
            for tweet in self._database[PLAIN].find({})
            for person in tweet["user_mentions"]
        )
        most = min(counted, key=lambda name: (-counted[name], name))
        return [(most, counted[most])]

    def _most_mentioned_aggregated(self, _: int) -> Rows:
        # The thesis projects first, which mongod does by itself, and which FerretDB 1.24 fails at.
        pipeline: list[Document] = [
            {"$unwind": "$user_mentions"},
            {"$group": {"_id": "$user_mentions.screen_name", "count": {"$sum": 1}}},
            {"$sort": {"count": -1, "_id": 1}},
            {"$limit": 1},
        ]
        groups = self._database[PLAIN].aggregate(pipeline)
        return [(group["_id"], group["count"]) for group in groups]


def documents(sizes: Sizes, seed: int) -> Iterator[Document]:
    """A document for each tweet."""
    for row, (tags, people) in zip(tweets(sizes, seed), mentions(sizes, seed), strict=True):
        number, user, location, created_at, retweets, text = row
        yield {
            "_id": number,
            "user": {"id": user, "location": location},
            "created_at": created_at,
            "retweets": retweets,
            "text": text,
            "hashtags": tags,
            "user_mentions": [{"id": person, "screen_name": f"user_{person}"} for person in people],
        }


TWITTER = MongodbServer


_LONGEST_EMPTYING_S = 60.0


def _ycsb_properties(target: Target, _threads: int) -> Mapping[str, object]:
    login = {"mongodb.username": target.user, "mongodb.password": target.password}
    where = f"mongodb://{target.host}:{target.port}/{goycsb.DATABASE}?w=1"
    return {"mongodb.url": where, **(login if target.user else {})}


def _ycsb_empty(target: Target) -> None:
    with closing(connect_target(target, _LONGEST_EMPTYING_S)) as client:
        client[goycsb.DATABASE][goycsb.TABLE].drop()


YCSB = goycsb.Driver(
    "mongodb",
    _ycsb_properties,
    _ycsb_empty,
    (pymongo.errors.PyMongoError,),
    databases=frozenset({goycsb.DATABASE}),
    other_database=f"go-ycsb knows no other MongoDB database than {goycsb.DATABASE}",
)
