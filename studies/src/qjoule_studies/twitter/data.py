# SPDX-License-Identifier: Apache-2.0
"""A seeded, Twitter-like data set: locations, users, tweets, and what tweets mention.

A few users write much and most write little; a few hashtags and users are mentioned everywhere.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate, product
from typing import TypeAlias

Row: TypeAlias = tuple[object, ...]

TWEETS_PER_USER = 20
TWEETS_PER_LOCATION = 50
MOST_LOCATIONS = 8_000  #: names of three syllables out of twenty
MOST_MENTIONS = 3  #: of hashtags, and of users, in a tweet
HASHTAGS = 1_000

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


def location_names(sizes: Sizes) -> list[str]:
    """The names of all locations, in the order of the table."""
    spelled = product(_SYLLABLES, repeat=3)
    # A stride coprime to the number of names visits each name once, well mixed.
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


def mentions(sizes: Sizes, seed: int) -> Iterator[tuple[list[str], list[int]]]:
    """Each tweet's hashtags without `#` and ids of users, in order; up to three of each.

    Popularity of both falls with the rank: the n-th is mentioned in proportion to 1/n.
    """
    chance = random.Random(f"mentions {seed}")
    tags = [f"{chance.choice(_WORDS)}{number}" for number in range(1, HASHTAGS + 1)]
    people = list(range(1, sizes.users + 1))
    chance.shuffle(people)  # who is mentioned is not who writes
    of_tags, of_people = (
        list(accumulate(1 / rank for rank in range(1, count + 1)))
        for count in (len(tags), len(people))
    )
    for _ in range(sizes.tweets):
        tagged = chance.choices(tags, cum_weights=of_tags, k=chance.randint(0, MOST_MENTIONS))
        named = chance.choices(people, cum_weights=of_people, k=chance.randint(0, MOST_MENTIONS))
        yield list(dict.fromkeys(tagged)), list(dict.fromkeys(named))


def _sentence(chance: random.Random, least: int, most: int) -> str:
    return " ".join(chance.choices(_WORDS, k=chance.randint(least, most)))
