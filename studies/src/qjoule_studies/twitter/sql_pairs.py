# SPDX-License-Identifier: Apache-2.0
"""Pairs of SQL queries: two ways to get the same answer, the one the thesis found worse first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from qjoule_studies.twitter import NOT_IN_THESIS
from qjoule_studies.twitter.data import Sizes, location_names

#: Literals of the n-th call. Both forms of a pair get the same: their work is the same.
Literals = Callable[[int], tuple[object, ...]]

JOINED_TWEETS = 1_000  #: read by one call of the join
_RANGE = 50  #: tweets of one call of `range`
_USERS = 20  #: users of one call of `covered`


@dataclass(frozen=True)
class Form:
    """One way to write a query. Cheap queries are called more often, to measure them well."""

    label: str
    sql: str
    calls_per_round: int
    literals: Literals | None = None  #: where they are not the pair's


@dataclass(frozen=True)
class Pair:
    """Two forms of one query, the worse one first; see `pair.PairFacts`."""

    name: str
    title: str
    source: str
    forms: tuple[Form, Form]
    literals: Literals
    most_calls: int | None = None
    same_rows: bool = True

    @property
    def labels(self) -> tuple[str, str]:
        return self.forms[0].label, self.forms[1].label


def query_pairs(sizes: Sizes) -> tuple[Pair, ...]:
    """The thesis's pairs for a data set of this size; the demo shows them."""
    names = location_names(sizes)
    counted, deleted = names[: len(names) // 2], names[len(names) // 2 :]
    last = max(1, sizes.tweets - JOINED_TWEETS)

    def tweets_from(call: int) -> tuple[object, ...]:
        first = 1 + call * 7_919 % last
        return first, first + JOINED_TWEETS - 1

    return (
        Pair(
            "count",
            "count by location",
            "Table 5-1",
            _with_index("SELECT COUNT(*) FROM {} WHERE location = %s", 3, 300),
            lambda call: (counted[call % len(counted)],),
        ),
        Pair(
            "delete",
            "delete by location",
            "Table 5-2",
            _with_index("DELETE FROM {} WHERE location = %s", 3, 3),
            lambda call: (deleted[call],),
            most_calls=len(deleted),
        ),
        Pair(
            "most_tweeted",
            "most tweeting user",
            "Table 5-3",
            _with_index(
                "SELECT user_id FROM {} GROUP BY user_id ORDER BY COUNT(*) DESC LIMIT 1",
                3,
                6,
            ),
            lambda _: (),
        ),
        Pair(
            "select_star",
            "columns of a join",
            "Table 5-4",
            (
                _join("SELECT *", "*"),
                _join("named", "users.screen_name, locations.country"),
            ),
            tweets_from,
            same_rows=False,  # of the same tweets, but not the same columns
        ),
        Pair(
            "in_exists",
            "users of popular tweets",
            "Table 5-5",
            (
                Form(
                    "IN (subquery)",
                    "SELECT id FROM users WHERE id IN "
                    "(SELECT user_id FROM indexed_tweets WHERE retweets > %s)",
                    3,
                ),
                Form(
                    "EXISTS",
                    "SELECT id FROM users WHERE EXISTS (SELECT 1 FROM indexed_tweets "
                    "WHERE indexed_tweets.user_id = users.id AND retweets > %s)",
                    3,
                ),
            ),
            lambda call: (1_000 + call % 10,),
        ),
    )


def more_pairs(sizes: Sizes) -> tuple[Pair, ...]:
    """Pairs of the same kind that the thesis has not measured."""
    last = max(1, sizes.tweets - _RANGE)
    either = " OR ".join(["id = %s"] * _RANGE)

    def ids_from(call: int) -> tuple[object, ...]:
        first = 1 + call * 7_919 % last
        return tuple(range(first, first + _RANGE))

    def ends(call: int) -> tuple[object, ...]:
        return ids_from(call)[0], ids_from(call)[-1]

    def of_users(call: int) -> tuple[object, ...]:
        first = 1 + call * 31 % max(1, sizes.users - _USERS)
        return first, first + _USERS

    covered = "FROM indexed_tweets WHERE user_id BETWEEN %s AND %s"
    return (
        Pair(
            "in_join",
            "IN or a join",
            NOT_IN_THESIS,
            (
                Form(
                    "IN (subquery)",
                    "SELECT id FROM users WHERE id IN "
                    "(SELECT user_id FROM indexed_tweets WHERE retweets > %s)",
                    3,
                ),
                Form(
                    "JOIN",
                    "SELECT DISTINCT users.id FROM users JOIN indexed_tweets "
                    "ON indexed_tweets.user_id = users.id WHERE retweets > %s",
                    3,
                ),
            ),
            lambda call: (1_000 + call % 10,),
        ),
        Pair(
            "covered",
            "a query that an index covers",
            f"{NOT_IN_THESIS} for SQL; Table 6-1 of MongoDB",
            (
                Form("not covered", f"SELECT user_id, retweets {covered}", 10),
                Form("covered", f"SELECT user_id {covered}", 10),
            ),
            of_users,
            same_rows=False,
        ),
        Pair(
            "range",
            "many ORs or a range",
            NOT_IN_THESIS,
            (
                Form("ORs", f"SELECT id, retweets FROM tweets WHERE {either}", 10),
                Form(
                    "BETWEEN",
                    "SELECT id, retweets FROM tweets WHERE id BETWEEN %s AND %s",
                    10,
                    ends,
                ),
            ),
            ids_from,
        ),
    )


def _with_index(sql: str, plain_calls: int, indexed_calls: int) -> tuple[Form, Form]:
    return (
        Form("without an index", sql.format("tweets"), plain_calls),
        Form("with an index", sql.format("indexed_tweets"), indexed_calls),
    )


def _join(label: str, columns: str) -> Form:
    sql = (
        f"SELECT {columns} FROM tweets JOIN users ON users.id = tweets.user_id "
        "JOIN locations ON locations.name = tweets.location WHERE tweets.id BETWEEN %s AND %s"
    )
    return Form(label, sql, 10)
