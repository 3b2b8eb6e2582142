# SPDX-License-Identifier: Apache-2.0
"""Shapes by example: truncation, raw passages, and planted secrets. Also:
data that strangers cause is kept in bounded memory.
"""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz import planted
from fuzz.shape_library import SQL_DIALECTS, c_hash
from qjoule.contract import SEGMENT, TASK, OwnerKind, TaskEvent
from qjoule.servers import registry
from qjoule.servers.cassandra.wire import Batches
from qjoule.servers.decoding import fingerprint, summary
from qjoule.servers.mongodb.wire import Cursors
from qjoule.servers.mysql.other_ids import percona_fingerprint
from qjoule.servers.mysql.wire import LEXIS
from qjoule.shapes.rules import Backslash, Charset, Quoting, backtick_rules, standard_rules
from qjoule.shapes.safe_text import sanitise
from qjoule.shapes.shape import Texts
from qjoule.shapes.sql import reduced_sql
from qjoule.stream.owners import Owners

MYSQL, POSTGRES = registry.dialect("mysql"), registry.dialect("postgres")


def test_every_cut_of_a_long_insert_has_one_shape() -> None:
    statement = b"insert into t (a, b) values " + b", ".join([b"(12, 'it''s')"] * 20)
    start = statement.index(b"values (") + len(b"values (1")
    shapes = {
        fingerprint(statement[:cut], MYSQL, True).text for cut in range(start, len(statement))
    }
    assert shapes == {"insert into t(a, b) values (?+…"}


@pytest.mark.parametrize("dialect", SQL_DIALECTS)
@pytest.mark.parametrize("element", [b"-12", b"(1, -2)", b"f(-3)", b"cast(4 as int)"])
@pytest.mark.parametrize("start", [b"select a from t where b in (", b"insert into t values ("])
def test_every_cut_of_a_long_list_has_one_shape(dialect: int, element: bytes, start: bytes) -> None:
    statement = start + b", ".join([element] * 100)
    begin = len(start) + 4 * len(element + b", ")
    cuts = range(begin, len(statement))
    assert len({fingerprint(statement[:cut], dialect, True).text for cut in cuts}) == 1


@pytest.mark.parametrize(
    ("statement", "shape"),
    [
        (b"select a from t where b = 'secr", "select a from t where b = ?…"),
        (b"select a from t /* comm", "select a from t…"),
        (b"select a from tab", "select a from tab…"),
        (b"select a from t where b in (1, 2", "select a from t where b in (?+…"),
        (b"select a from `ta", "select a from `ta…"),
        (b"", "…"),
    ],
)
def test_a_cut_statement_ends_in_an_ellipsis(statement: bytes, shape: str) -> None:
    assert fingerprint(statement, MYSQL, truncated=True).text == shape


@pytest.mark.parametrize("dialect", SQL_DIALECTS)
def test_the_lengths_of_literals_do_not_matter_at_the_cut(dialect: int) -> None:
    statements = [
        b"update t set a = '%s', b = b + 1, c = '%s' where d in (1, 2) limit 5"
        % (b"x" * n, b"y" * m)
        for n in range(0, 6000, 97)
        for m in (0, 10, 2000, 5000)
    ]
    cut = {fingerprint(s[:4096], dialect, truncated=True).text for s in statements if len(s) > 4096}
    assert cut == {"update t set a = ?…"}


def test_the_seed_and_a_cut_change_the_hash() -> None:
    assert len({c_hash(b"select 1", MYSQL, seed=seed) for seed in range(1000)}) == 1000
    for dialect in SQL_DIALECTS:
        assert c_hash(b"select 1", dialect) != c_hash(b"select 1", dialect, truncated=True)


@pytest.mark.parametrize(
    ("dialect", "first", "second"),
    [
        (MYSQL, b"select a from t1", b"select a from t2"),
        (MYSQL, b"select 'a' + b", b"select 'a' - b"),
        (MYSQL, b"select /*!40001 a */ b", b"select /*!50001 a */ b"),
        (MYSQL, b"select a -- b", b"select a --b"),
        (MYSQL, b'select "a"', b"select `a`"),
        (MYSQL, b"update t set value = value - 1", b"update t set value = value + 1"),
        (MYSQL, b"select caf\xe9 from t", b"select caf\xe8 from t"),
        (POSTGRES, b'select "a b"', b"select 'a b'"),
        (POSTGRES, b'select "A"', b"select a"),
        (POSTGRES, b"select E'\\' , x", b"select '\\' , x"),
        (POSTGRES, b"select /* /* */ a */ b", b"select /* */ a */ b"),
    ],
)
def test_different_statements_differ(dialect: int, first: bytes, second: bytes) -> None:
    assert c_hash(first, dialect) != c_hash(second, dialect)
    assert fingerprint(first, dialect).fingerprint != fingerprint(second, dialect).fingerprint


def test_a_deep_comment_and_a_tagged_string_are_resolved_exactly() -> None:
    deep = b"select a " + b"/* ' " * 9 + b" */" * 9 + b", $x$ ' $y$ $x$ , b"
    assert fingerprint(deep, POSTGRES).text == "select a, ?, b"
    unclosed = b"select a " + b"/*" * 9 + b" */" * 8 + b", b"
    assert fingerprint(unclosed, POSTGRES).text == "select a"


def test_hostile_bytes_are_visible_and_harmless() -> None:
    shape = fingerprint(b"select \x1b[2J\x01\xff\xe2\x80\xae `a\nb\x9b` ", MYSQL)
    assert shape.text == "select \ufffd[? j\ufffdÿâ€® `a b\u203a`"
    assert fingerprint(b"select a\0b from t", MYSQL).text == "select a…"  # no server takes it
    assert sanitise("a\x1b[31mb\r\n\u202ec") == "a\ufffd[31mb  \ufffdc"


def test_length_bounds_the_texts_but_not_the_ids() -> None:
    statement = b"select " + b"a, " * 100 + b"b"
    short, unbounded = fingerprint(statement, MYSQL, length=20), fingerprint(statement, MYSQL)
    assert short.text == "select a, a, a, a, …"
    assert short.fingerprint == unbounded.fingerprint


def test_a_structure_of_unusual_length_counts_as_truncated() -> None:
    shape = fingerprint(b"select " + b"a," * 10**5, MYSQL)
    assert shape.truncated
    assert shape.text.endswith("…")


# ---- no literal of a statement is in its shape ---------------------------------------------------

# As a second reading of the servers' rules finds it; nightly/servers/test_planted_secrets.py asks
# the servers.

LATIN1 = backtick_rules(Quoting.STRINGS, Charset.LATIN1)
UNSAFE = standard_rules(Backslash.PLAIN, safe=False)


@pytest.mark.parametrize(
    ("kind", "grammar", "rules"),
    [
        ("mysql", planted.MARIADB, (None, 0)),
        ("mysql", planted.MYSQL, (None, 0)),
        ("mysql", planted.MARIADB_LATIN1, (LATIN1, 0)),
        ("postgres", planted.POSTGRES, (None, UNSAFE, 0)),
        ("cql", planted.CQL, (None,)),
    ],
)
@given(data=st.data(), truncated=st.booleans())
def test_no_secret_is_in_a_shape(
    kind: str,
    grammar: planted.Grammar,
    rules: tuple[int | None, ...],
    data: st.DataObject,
    truncated: bool,
) -> None:
    text = data.draw(planted.statements(grammar))
    if truncated:
        text = text[: data.draw(st.integers(0, len(text)))]
    secrets, statement = planted.secrets_in(grammar, text), text.encode("latin-1")
    for number in rules:
        shape = fingerprint(statement, registry.dialect(kind), truncated, rules=number)
        shown = [shape.text, summary(shape)]
        if kind == "mysql":
            reduced, _ = reduced_sql(statement, truncated, LEXIS, rules=number)
            shown.append(percona_fingerprint(reduced))
        assert not secrets & set(planted.SECRET.findall(" ".join(shown))), (text, shown)


# ---- data that strangers cause is kept in bounded memory, and displaces nobody else's ------------

MOST = 1_000


def forked(first: int, number: int, t_ns: int) -> np.ndarray:
    """Forks of processes whose exits are never reported."""
    tasks = np.zeros(number, TASK)
    tasks["pid"] = tasks["tgid"] = np.arange(first, first + number)
    tasks["t_ns"], tasks["event"], tasks["comm"] = t_ns, TaskEvent.FORK, b"bomb"
    return tasks


def ran(t_ns: int, *threads: tuple[int, OwnerKind, int]) -> np.ndarray:
    segments = np.zeros(len(threads), SEGMENT)
    for segment, (pid, kind, server) in zip(segments, threads, strict=True):
        segment["pid"] = segment["tgid"] = pid
        segment["owner_kind"], segment["server"] = kind, server
        segment["t0_ns"], segment["t1_ns"] = t_ns, t_ns + 1
    return segments


def test_lives_without_an_end_are_bounded() -> None:
    owners = Owners(max_threads=MOST)
    alive = forked(7, 3, 1)
    alive["event"], alive["comm"] = TaskEvent.ALIVE, (b"backup", b"purge", b"idle")
    alive["server"][1:2] = 1
    owners.apply(alive)
    for batch in range(1, 30):
        t_ns = batch * 1_000
        owners.apply(forked(100 + batch * 200, 200, t_ns))
        bombs = [(100 + batch * 200 + i, OwnerKind.PROCESS, 0) for i in range(200)]
        owners.resolve(ran(t_ns, (7, OwnerKind.PROCESS, 0), *bombs))
        owners.forget(t_ns)
        assert len(owners._lives) <= MOST
    resolved = owners.resolve(ran(40_000, (7, OwnerKind.PROCESS, 0), (8, OwnerKind.SERVER, 1)))
    rows = {row["owner"]: row for row in owners.take_changes().to_pylist()}
    assert [rows[owner]["comm"] for owner in resolved.tolist()] == ["backup", "purge"]
    assert len(rows) >= 29 * 200, "each has its row in the trace all the same"


def test_a_thread_number_that_is_used_again_ends_the_life_before() -> None:
    owners = Owners()
    for t_ns in range(0, 3_000_000_000_000, 30_000_000_000):
        owners.apply(forked(100, 1, t_ns + 1))
        owners.resolve(ran(t_ns + 2, (100, OwnerKind.PROCESS, 0)))
        owners.forget(t_ns)
        assert len(owners._lives[100, 100]) <= 2


def test_texts_are_bounded_by_bytes_and_the_last_stay() -> None:
    texts = Texts(max_bytes=1_000)
    for shape in range(100):
        texts.add(shape, "x" * 100)
        assert texts.get(0) is not None, "asked for each time"
        assert texts.bytes <= 1_000
    assert [shape in texts for shape in (0, 1, 50, 99)] == [True, False, False, True]
    texts.add(99, "y")
    assert texts.bytes == 901


@pytest.mark.parametrize(
    ("kept", "dialect"),
    [(Cursors(), registry.dialect("mongodb")), (Batches(), registry.dialect("cql"))],
)
def test_long_statements_of_ever_new_shapes(kept: Cursors | Batches, dialect: int) -> None:
    """100,000 statements of 4 KiB are 400 MB."""
    shapes = count(1)
    text = "x" * 4_096
    for _ in range(10_000):
        kept.learn(next(shapes), dialect, text)
    assert kept._texts.bytes <= 16 << 20
