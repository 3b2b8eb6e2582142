# SPDX-License-Identifier: Apache-2.0
"""The demo's data set and its pairs of queries, without a server."""

from __future__ import annotations

import pytest

from qjoule.servers import registry
from qjoule.servers.mysql.throwaway import temporary_directory
from qjoule.servers.shapes import fingerprint
from qjoule.studies.twitter.data import (
    MOST_LOCATIONS,
    Sizes,
    location_names,
    locations,
    tweets,
    users,
)
from qjoule.studies.twitter.sql_pairs import Form, query_pairs
from workload import run


def test_the_same_seed_gives_the_same_rows() -> None:
    sizes = Sizes(1_000)
    assert list(tweets(sizes, 1)) == list(tweets(sizes, 1))
    assert list(tweets(sizes, 1)) != list(tweets(sizes, 2))


@pytest.mark.parametrize("size", [1_000, 5_000])
def test_rows_refer_to_rows_that_exist(size: int) -> None:
    sizes = Sizes(size)
    known = {row[0] for row in locations(sizes, 1)}
    writers = {row[0] for row in users(sizes, 1)}
    rows = list(tweets(sizes, 1))
    assert (len(known), len(writers), len(rows)) == (sizes.locations, sizes.users, size)
    assert {row[2] for row in rows} <= known
    assert {row[1] for row in rows} <= writers
    assert max(len(str(row[5])) for row in rows) <= 280


def test_every_location_has_its_own_name() -> None:
    names = location_names(Sizes(10_000_000))
    assert len(set(names)) == len(names) == MOST_LOCATIONS


def test_all_forms_differ_in_shape() -> None:
    forms = [form for pair in query_pairs(Sizes(1_000)) for form in pair.forms]
    shapes = {_fingerprint(form) for form in forms}
    assert len(shapes) == len(forms) == 10


def test_shapes_do_not_depend_on_literals() -> None:
    """The report finds a form's row by the fingerprint of its statement with other literals."""
    for pair in query_pairs(Sizes(1_000)):
        for form in pair.forms:
            sent = form.sql % tuple(repr(value) for value in pair.literals(3))
            assert fingerprint(
                sent.encode(), registry.dialect("mysql")
            ).fingerprint == _fingerprint(form)


class Cursor:
    def __init__(self) -> None:
        self.sent: list[tuple[str, tuple[object, ...]]] = []

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None: ...

    def execute(self, sql: str, literals: tuple[object, ...]) -> None:
        self.sent.append((sql, literals))

    def fetchall(self) -> None: ...


class Connection:
    def __init__(self) -> None:
        self.recorder = Cursor()

    def cursor(self) -> Cursor:
        return self.recorder


def test_forms_take_turns_and_deletes_use_nothing_twice() -> None:
    connection, pairs = Connection(), query_pairs(Sizes(1_000))
    run(connection, pairs, 0.05)  # type: ignore[arg-type]
    order = list(dict.fromkeys(sql for sql, _ in connection.recorder.sent))
    assert order == [form.sql for pair in pairs for form in pair.forms]
    for form in pairs[1].forms:
        deleted = [literals for sql, literals in connection.recorder.sent if sql == form.sql]
        assert len(deleted) == len(set(deleted)) == pairs[1].most_calls


def test_the_directory_is_removed_when_the_demo_fails() -> None:
    with pytest.raises(ZeroDivisionError), temporary_directory("test") as directory:
        (directory / "file").write_text("x")
        raise ZeroDivisionError
    assert not directory.exists()


def _fingerprint(form: Form) -> str:
    return fingerprint(form.sql.replace("%s", "1").encode(), registry.dialect("mysql")).fingerprint
