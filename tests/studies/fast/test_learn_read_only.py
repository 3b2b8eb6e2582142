# SPDX-License-Identifier: Apache-2.0
"""Which statements `qjoule learn` may repeat."""

from __future__ import annotations

import pytest

from qjoule.errors import UsageError
from qjoule.servers import registry
from qjoule.studies.read_only import choose, why_not
from qjoule.studies.workload import Target
from qjoule.studies.workloads.replay import Replay

MYSQL, POSTGRES, REDIS = (registry.dialect(name) for name in ("mysql", "postgres", "redis"))


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("select * from t where a = 'delete from t'", ""),
        ("SELECT updated, `update` /* insert */ FROM t;", ""),
        ("WITH x AS (SELECT 1) SELECT * FROM x", ""),
        (";", "empty"),
        ("SELECT 1; DELETE FROM t", "more than one"),
        ("SELECT * FROM t FOR UPDATE", "'update'"),
        ("SELECT * INTO OUTFILE '/tmp/x' FROM t", "'into'"),
        ("SELECT @a := 1", "sets a variable"),
        ("SELECT /*! SQL_NO_CACHE */ 1", "comment holds code"),
        ("SELECT `sleep`(10)", "'sleep'"),
        ("CALL p()", "begins with 'call'"),
        ("WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x", "'delete'"),
        ("SELECT `a", "does not end"),
        ("SELECT " + "a+" * 200_000 + "a", "understood to its end"),
    ],
)
def test_only_what_reads_may_be_repeated(sql: str, why: str) -> None:
    told = why_not(sql, MYSQL)
    assert bool(told) == bool(why)
    assert why in told


def test_other_languages_and_unknown_statements_are_refused() -> None:
    assert "not SQL" in why_not("GET a", REDIS)
    assert why_not("SELECT set_config('transaction_read_only', 'off', false)", POSTGRES)
    found = choose({}, ["SELECT x FROM elsewhere"], "mysql")
    assert (found.statements, len(found.refused)) == ((), 1)
    with pytest.raises(UsageError):
        Replay().run(Target("mariadb", database="d"), {"statements": '["DELETE FROM t"]'})
