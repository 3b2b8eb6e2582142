# SPDX-License-Identifier: Apache-2.0
"""Servers and settings that a study refuses, and statements that `qjoule learn` does not repeat."""

from __future__ import annotations

from pathlib import Path

import pytest

from qjoule.errors import QjouleError, UsageError
from qjoule.servers import registry
from qjoule_studies.read_only import choose, why_not
from qjoule_studies.servers import STARTED, start
from qjoule_studies.servers.prerequisites import CACHE_VARIABLE
from qjoule_studies.workload import Target, Value
from qjoule_studies.workloads.replay import Replay


def refused(name: str, settings: dict[str, Value]) -> str:
    with pytest.raises(UsageError) as error, start(name, settings):
        pytest.fail(f"{name} was started")
    return str(error.value)


@pytest.mark.parametrize("name", ["", "oracle", "../mariadb", "mariadb\n"])
def test_only_known_servers_are_started(name: str) -> None:
    assert "choose mariadb" in refused(name, {})


NO_NAMES = ["", "-", "a b", "a=b", "a\nb", "--datadir", "x" * 200, "a;b", "requirepass\0"]


@pytest.mark.parametrize(
    ("name", "setting", "value", "message"),
    [
        *((name, "a=b", 1, "is no name of a setting") for name in STARTED),
        *(("redis", setting, 1, "is no name of a setting") for setting in NO_NAMES),
        ("redis", "maxmemory", "1\nuser root", "cannot be printed"),
        ("mariadb", "datadir", "/etc", "is chosen by qjoule"),
        ("voltdb", "heap", "1g", "take heap out"),
    ],
)
def test_settings_that_a_study_may_not_give(
    name: str, setting: str, value: Value, message: str
) -> None:
    assert message in refused(name, {setting: value})


def test_what_is_not_there_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / ".cassandra-half").mkdir()
    how = dict.fromkeys(("mysql", "cassandra", "mongodb", "voltdb"), "make servers")
    for name, message in (how | {"redis": "package redis-server"}).items():
        with pytest.raises(QjouleError, match=message), start(name, {}):
            pytest.fail(f"{name} was started")


MYSQL, POSTGRES, REDIS = (registry.dialect(name) for name in ("mysql", "postgres", "redis"))


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("select * from t where a = 'delete from t'", ""),
        ("SELECT updated, `update` FROM t WHERE lower(a) IN ('(', f) AND (1 = 1);", ""),
        ("WITH x AS (SELECT 1) SELECT * FROM x", ""),
        ("SELECT 1; DELETE FROM t", "more than one"),
        ("SELECT * FROM t FOR UPDATE", "'update'"),
        ("SELECT * INTO OUTFILE '/tmp/x' FROM t", "'into'"),
        ("SELECT @a := 1", "sets a variable"),
        ("SELECT /*! SQL_NO_CACHE */ 1", "a comment"),
        ("SELECT `sleep`(10)", "calls 'sleep'"),
        ('SELECT "sleep"(10)', "calls"),
        ("SELECT sleep (10)", "calls 'sleep'"),
        ("SELECT shop.lower(10)", "calls 'lower'"),
        ("SELECT 'a\\' , sleep(1) , '", "a backslash"),
        ("CALL p()", "begins with 'call'"),
        ("WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x", "'delete'"),
        ("SELECT " + "a+" * 200_000 + "a", "understood to its end"),
    ],
)
def test_only_what_reads_may_be_repeated(sql: str, why: str) -> None:
    reason = why_not(sql, MYSQL)
    assert bool(reason) == bool(why)
    assert why in reason


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT count(*) FILTER (WHERE a > $1) FROM t GROUP BY cast(a AS numeric(9, 2))", ""),
        ("SELECT set_config('transaction_read_only', 'off', false)", "calls 'set_config'"),
        ("SELECT pg_catalog.pg_terminate_backend(1)", "calls 'pg_terminate_backend'"),
        (r'SELECT U&"pg\005fterminate\005fbackend"(1)', "holds"),
        ("SELECT U&\"pg!005fterminate!005fbackend\" UESCAPE '!' (1)", "code points"),
        ("SELECT $a$ ' $a$, pg_sleep(9), $a$ ' $a$", "dollar"),
    ],
)
def test_what_postgresql_may_be_asked_again(sql: str, why: str) -> None:
    reason = why_not(sql, POSTGRES)
    assert bool(reason) == bool(why)
    assert why in reason


def test_other_languages_and_unknown_statements_are_refused() -> None:
    assert "not SQL" in why_not("GET a", REDIS)
    chosen = choose({}, ["SELECT x FROM elsewhere"], "mysql")
    assert (chosen.statements, len(chosen.refused)) == ((), 1)
    with pytest.raises(UsageError):
        Replay().run(Target("mariadb", database="d"), {"statements": '["DELETE FROM t"]'})
