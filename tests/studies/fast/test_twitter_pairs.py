# SPDX-License-Identifier: Apache-2.0
"""The workload `twitter` and the demo without servers: data, pairs, options, counted calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from qjoule.errors import UsageError
from qjoule.servers import registry
from qjoule.servers.shapes import fingerprint
from qjoule.studies.twitter.data import (
    Sizes,
)
from qjoule.studies.twitter.pair import Rows
from qjoule.studies.twitter.sql_pairs import Form, more_pairs, query_pairs
from qjoule.studies.workload import Target, Value
from qjoule.studies.workloads import twitter
from qjoule.studies.workloads.twitter import Twitter

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


def test_unknown_pairs_and_servers_name_those_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="cannot be run against 'voltdb'"):
        Twitter().run(Target("voltdb"), Twitter.defaults)
    server = served(monkeypatch, ToyServer())
    for call in (Twitter().prepare, Twitter().run):
        with pytest.raises(UsageError, match="choose most_tweeted"):
            call(Target("mariadb"), options(pair="\x1b[2Jdrop"))
    assert (server.calls, server.closed) == (0, 2)


def test_every_form_has_a_shape_that_does_not_depend_on_literals() -> None:
    """The report finds a form's row by the fingerprint of its statement with other literals."""
    forms = [form for pair in query_pairs(Sizes(1_000)) for form in pair.forms]
    assert len({_fingerprint(form) for form in forms}) == len(forms) == 10
    for pair in query_pairs(Sizes(1_000)):
        for form in pair.forms:
            sent = form.sql % tuple(repr(value) for value in pair.literals(3))
            assert fingerprint(
                sent.encode(), registry.dialect("mysql")
            ).fingerprint == _fingerprint(form)


def _fingerprint(form: Form) -> str:
    return fingerprint(form.sql.replace("%s", "1").encode(), registry.dialect("mysql")).fingerprint
