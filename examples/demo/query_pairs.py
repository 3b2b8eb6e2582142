"""The pairs of queries that the demo compares: two ways to get the same answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twitter_data import Sizes, location_names

#: Literals of the n-th call. Both forms of a pair get the same: their work is the same.
Literals = Callable[[int], tuple[object, ...]]

JOINED_TWEETS = 1_000  #: read by one call of the join


@dataclass(frozen=True)
class Form:
    """One way to write a query. A cheap one is called more often, to be seen well."""

    label: str
    sql: str
    calls_per_round: int


@dataclass(frozen=True)
class Pair:
    """Two forms of one query."""

    title: str
    forms: tuple[Form, Form]
    literals: Literals
    most_calls: int | None = None  #: of each form, where calls use something up


def query_pairs(sizes: Sizes) -> tuple[Pair, ...]:
    """The pairs for a data set of this size."""
    names = location_names(sizes)
    counted, deleted = names[: len(names) // 2], names[len(names) // 2 :]
    last = max(1, sizes.tweets - JOINED_TWEETS)

    def tweets_from(call: int) -> tuple[object, ...]:
        first = 1 + call * 7_919 % last
        return first, first + JOINED_TWEETS - 1

    return (
        Pair(
            "count by location",
            _with_index("SELECT COUNT(*) FROM {} WHERE location = %s", 3, 300),
            lambda call: (counted[call % len(counted)],),
        ),
        Pair(
            "delete by location",
            _with_index("DELETE FROM {} WHERE location = %s", 3, 3),
            lambda call: (deleted[call],),
            most_calls=len(deleted),
        ),
        Pair(
            "most tweeting user",
            _with_index(
                "SELECT user_id FROM {} GROUP BY user_id ORDER BY COUNT(*) DESC LIMIT 1",
                3,
                6,
            ),
            lambda _: (),
        ),
        Pair(
            "columns of a join",
            (
                _join("SELECT *", "*"),
                _join("named", "users.screen_name, locations.country"),
            ),
            tweets_from,
        ),
        Pair(
            "users of popular tweets",
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
