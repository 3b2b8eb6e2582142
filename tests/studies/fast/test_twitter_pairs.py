# SPDX-License-Identifier: Apache-2.0
"""The workload `twitter` without servers: data, pairs, options, and counting of calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from qjoule.errors import QjouleError, UsageError
from qjoule.studies.twitter.data import HASHTAGS, MOST_MENTIONS, Sizes, mentions
from qjoule.studies.twitter.pair import FORMS, Rows
from qjoule.studies.twitter.sql_pairs import more_pairs, query_pairs
from qjoule.studies.workload import Target, Value
from qjoule.studies.workloads import twitter
from qjoule.studies.workloads.twitter import GONE_AFTER, Twitter

SIZES = Sizes(2_000)


class Refused(Exception):
    """The toy server's error."""


@dataclass(frozen=True)
class ToyPair:
    name: str = "most_tweeted"
    title: str = "most tweeting user"
    source: str = "Table 5-3"
    labels: tuple[str, str] = ("slow", "quick")
    same_rows: bool = True
    most_calls: int | None = None


@dataclass
class ToyServer:
    """Counts calls; those from `fails` on are refused."""

    pair: ToyPair = field(default_factory=ToyPair)
    fails: int | None = None
    calls: int = 0
    closed: int = 0
    errors: tuple[type[Exception], ...] = (Refused,)

    @property
    def pairs(self) -> Mapping[str, ToyPair]:
        return {self.pair.name: self.pair}

    def prepare(self, pair: str, form: str, seed: int) -> None: ...

    def open(self, pair: str, form: str, seed: int) -> None: ...

    def call(self, number: int) -> Rows:
        assert number == self.calls
        self.calls += 1
        if self.fails is not None and number >= self.fails:
            raise Refused("no")
        return []

    def close(self) -> None:
        self.closed += 1


def served(monkeypatch: pytest.MonkeyPatch, server: ToyServer) -> ToyServer:
    monkeypatch.setattr(twitter, "open_server", lambda *_: server)
    return server


def options(**changed: Value) -> dict[str, Value]:
    return {**Twitter.defaults, **changed}


def test_popularity_of_what_is_mentioned_is_skewed() -> None:
    sizes = Sizes(20_000)
    rows = list(mentions(sizes, 1))
    assert rows == list(mentions(sizes, 1)) != list(mentions(sizes, 2))
    assert len(rows) == sizes.tweets
    assert max(len(tags) for tags, _ in rows) == MOST_MENTIONS
    tags = Counter(tag for found, _ in rows for tag in found)
    people = Counter(person for _, found in rows for person in found)
    assert len(tags) <= HASHTAGS
    assert all(1 <= person <= sizes.users for person in people)
    for counted in (tags, people):
        (_, first), (_, second) = counted.most_common(2)
        # A tag or user drawn twice for a tweet counts once, which reduces the most popular ones.
        assert 1.4 < first / second < 2.3
        assert first > 50 * min(counted.values())


def test_sql_pairs_name_their_tables() -> None:
    thesis = query_pairs(SIZES)
    assert [pair.source for pair in thesis] == [f"Table 5-{number}" for number in range(1, 6)]
    every = (*thesis, *more_pairs(SIZES))
    assert len({pair.name for pair in every}) == len(every)
    for pair in every:
        assert pair.labels[0] != pair.labels[1]
        for form in pair.forms:
            literals = (form.literals or pair.literals)(7)
            assert form.sql.count("%s") == len(literals)


def test_calls_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    server = served(monkeypatch, ToyServer())
    done = Twitter().run(Target("mariadb"), options(operations=25, form="worse"))
    assert (done.operations, done.errors, server.calls, server.closed) == (25, 0, 25, 1)
    assert done.commands["worse"].operations == 25
    assert done.notes == ("most tweeting user, slow (Mahajan 2016: Table 5-3)",)


def test_seconds_end_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    served(monkeypatch, ToyServer())
    done = Twitter().run(Target("redis"), options(seconds=0.05))
    assert 0.05 <= done.wall_s < 5
    assert done.operations > 10
    assert set(done.commands) == {"better"}


@pytest.mark.parametrize("wanted", [{"operations": 100}, {"seconds": 3600}])
def test_what_is_used_up_ends_a_run_and_is_told(
    monkeypatch: pytest.MonkeyPatch, wanted: dict[str, Value]
) -> None:
    pair = ToyPair(name="delete", most_calls=7)
    served(monkeypatch, ToyServer(pair))
    done = Twitter().run(Target("mysql"), options(pair="delete", **wanted))
    assert done.operations == 7
    assert done.notes[1] == "stopped after 7 calls: there is nothing left to delete"


def test_a_server_that_refuses_everything_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    server = served(monkeypatch, ToyServer(fails=5))
    with pytest.raises(QjouleError, match="refuses most_tweeted: no"):
        Twitter().run(Target("mariadb"), options(operations=1_000))
    assert (server.calls, server.closed) == (5 + GONE_AFTER, 1)


def test_one_call_that_is_refused_is_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    served(monkeypatch, ToyServer(fails=0))
    with pytest.raises(QjouleError, match="refuses most_tweeted: no"):
        Twitter().run(Target("mariadb"), options(operations=1))


@pytest.mark.parametrize("form", FORMS)
def test_an_unknown_pair_names_those_there_are(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    server = served(monkeypatch, ToyServer())
    for call in (Twitter().prepare, Twitter().run):
        with pytest.raises(UsageError, match="choose most_tweeted"):
            call(Target("mariadb"), options(pair="\x1b[2Jdrop", form=form))
    assert (server.calls, server.closed) == (0, 2)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pair", 5),
        ("pair", True),
        ("form", "best"),
        ("form", ""),
        ("rows", 999),
        ("rows", 10**9),
        ("rows", float("nan")),
        ("rows", "many"),
        ("operations", -1),
        ("operations", 0.5),
        ("seconds", 0),
        ("seconds", -3),
        ("seconds", float("nan")),
        ("seconds", float("inf")),
        ("seconds", "10"),
        ("seed", -1),
        ("seed", True),
    ],
)
def test_options_that_make_no_sense_are_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, value: Value
) -> None:
    served(monkeypatch, ToyServer())
    with pytest.raises(UsageError, match=r"has to be|choose"):
        Twitter().run(Target("mariadb"), options(**{name: value}))


def test_voltdb_has_no_pairs() -> None:
    with pytest.raises(UsageError, match="cannot be run against 'voltdb'"):
        Twitter().run(Target("voltdb"), Twitter.defaults)


def test_a_server_that_does_not_answer_is_named() -> None:
    for flavour in ("redis", "mariadb", "postgres"):
        with pytest.raises(QjouleError, match=f"{flavour} at 127.0.0.1:1 does not answer"):
            Twitter().prepare(Target(flavour, port=1, user="u"), Twitter.defaults)
