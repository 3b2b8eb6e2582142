# SPDX-License-Identifier: Apache-2.0
"""Which statements `qjoule learn` may repeat, and how they are matched to a trace's shapes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qjoule.errors import QjouleError, UsageError
from qjoule.servers import registry
from qjoule.servers.shapes import fingerprint
from qjoule.studies.read_only import MOST_LINE, MOST_LINES, choose, read_statements, why_not
from qjoule.studies.reading.session import open_session
from qjoule.studies.workload import Target
from qjoule.studies.workloads.replay import Replay

MYSQL, POSTGRES, REDIS = (registry.dialect(name) for name in ("mysql", "postgres", "redis"))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "select * from t where a = 'delete from t'",
        "SELECT `update` FROM t;",
        "SHOW STATUS LIKE 'a%'",
        "WITH x AS (SELECT 1) SELECT * FROM x",
        "(SELECT 1) UNION (SELECT 2)",
        "SELECT count(*) /* insert */ FROM t -- drop table t",
        "SELECT updated, inserted_at FROM t",
    ],
)
def test_what_only_reads(sql: str) -> None:
    assert why_not(sql, MYSQL) == ""


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("", "empty"),
        (";", "empty"),
        ("INSERT INTO t VALUES (1)", "begins with 'insert'"),
        ("SELECT 1; DELETE FROM t", "more than one"),
        ("SELECT 1; SELECT 2", "more than one"),
        ("SELECT * FROM t FOR UPDATE", "'update'"),
        ("SELECT * FROM t LOCK IN SHARE MODE", "'lock'"),
        ("SELECT * INTO OUTFILE '/tmp/x' FROM t", "'into'"),
        ("SELECT 1 INTO @a", "'into'"),
        ("SELECT @a := 1", "sets a variable"),
        ("SELECT /*! SQL_NO_CACHE */ 1", "comment holds code"),
        ("SELECT /*!50000 1; DROP TABLE t */", ""),
        ("/*! DELETE FROM t */", ""),
        ("SELECT SLEEP(10)", "'sleep'"),
        ("SELECT `sleep`(10)", "'sleep'"),
        ("SELECT BENCHMARK(1000000, SHA2('a', 512))", "'benchmark'"),
        ("SELECT GET_LOCK('a', 1)", "'get_lock'"),
        ("SET GLOBAL read_only = 0", "begins with 'set'"),
        ("CALL p()", "begins with 'call'"),
        ("EXPLAIN ANALYZE DELETE FROM t", "begins with"),
        ("WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x", "'delete'"),
        ("SELECT `a", "does not end"),
        ("USE other", "begins with 'use'"),
        ("BEGIN", "begins with"),
        ("DROP TABLE t", "begins with"),
        ("SELECT " + "a+" * 200_000 + "a", "understood to its end"),
    ],
)
def test_what_may_not_be_repeated(sql: str, why: str) -> None:
    told = why_not(sql, MYSQL)
    assert told
    assert why in told


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT nextval('s')",
        "SELECT pg_advisory_lock(1)",
        "SELECT pg_terminate_backend(1)",
        'SELECT "pg_sleep"(1)',
        "SELECT set_config('transaction_read_only', 'off', false)",
        "SELECT * INTO t2 FROM t",
        "COPY t TO PROGRAM 'sh'",
        "SELECT * FROM t FOR NO KEY UPDATE",
        "SELECT 1; COMMIT; DROP TABLE t",
        "DO $$ BEGIN DELETE FROM t; END $$",
        "SELECT lo_import('/etc/passwd')",
    ],
)
def test_postgres_has_more_ways(sql: str) -> None:
    assert why_not(sql, POSTGRES)


def test_other_languages_are_none() -> None:
    assert "not SQL" in why_not("GET a", REDIS)


def shape(sql: str) -> tuple[str, str]:
    made = fingerprint(sql.encode(), MYSQL)
    return made.fingerprint, made.text


def test_statements_are_matched_by_shape() -> None:
    shapes = dict(map(shape, ("SELECT a FROM t WHERE b = 1", "SELECT now()", "UPDATE t SET a = 1")))
    lines = [
        "select a from t where b = 42",
        "SELECT a FROM t WHERE b = 43",
        "SELECT x FROM elsewhere",
        "UPDATE t SET a = 7",
    ]
    found = choose(shapes, lines, "mysql")
    assert [one.sql for one in found.statements] == ["select a from t where b = 42", "select now()"]
    assert [why.partition(":")[0] for why in found.refused] == [
        "the trace has no such statement",
        "it begins with 'update', not with SELECT or SHOW",
    ]
    assert found.missing == ("update t set a = ?",)


def test_a_shape_with_literals_is_no_statement() -> None:
    shapes = dict([shape("SELECT a FROM t WHERE b = 1")])
    assert choose(shapes, [], "mysql").statements == ()


def test_a_file_of_statements(tmp_path: Path) -> None:
    file = tmp_path / "s.sql"
    file.write_text("-- mine\n\n SELECT 1 \nSELECT 2\n")
    assert read_statements(file) == ["SELECT 1", "SELECT 2"]


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe",
        b"SELECT 'a\0b'",
        b"SELECT " + b"a" * MOST_LINE,
        b"SELECT 1\n" * (MOST_LINES + 1),
        b"\n" * (5 << 20),
    ],
)
def test_a_hostile_file(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "s.sql"
    file.write_bytes(content)
    with pytest.raises(QjouleError, match=r"s\.sql"):
        read_statements(file)


def test_no_file(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(QjouleError, match="cannot read"):
            read_statements(path)


@pytest.mark.parametrize(
    "text", ["[]", "{}", "[1]", '["DELETE FROM t"]', '["SELECT 1", "SET a=1"]']
)
def test_the_client_checks_again(text: str) -> None:
    target = Target("mariadb", database="d")
    with pytest.raises(UsageError):
        Replay().run(target, {"statements": text})


def test_a_database_is_needed() -> None:
    with pytest.raises(UsageError, match="--database"):
        open_session(Target("mariadb"), 1.0)
    assert json.loads(str(Replay.defaults["statements"])) == []
