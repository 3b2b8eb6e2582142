# SPDX-License-Identifier: Apache-2.0
"""`record` ends with the number of calls that `attribute` has in its total, and counts the rest."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from servers.process import DatabaseServer
from tracing.mysql_client import mysql_client
from tracing.recording import Run, attribute, recording

pytestmark = [pytest.mark.root, pytest.mark.server]

CALLS = 7


def mysql_work(server: DatabaseServer) -> int:
    """Calls, and beside them logins, prepares, closes, pings and what a procedure executes."""
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("create or replace database counted_calls")
        cursor.execute(
            "create procedure counted_calls.twice() begin do 1; select 1 as counted; end"
        )
        for _ in range(CALLS):
            cursor.execute("call counted_calls.twice()")
            connection.ping()
        cursor.execute("drop database counted_calls")
    with mysql_client(server.socket) as client:
        statement = client.prepare(b"select ? + 1 as counted")
        for number in range(CALLS):
            client.execute(statement, number)
        client.close_statement(statement)
    return 2 * CALLS + 3


def redis_work(server: DatabaseServer) -> int:
    """Pipelines: a request has several calls."""
    with closing(server.connect()) as client:
        for _ in range(CALLS):
            pipeline = client.pipeline(transaction=False)
            for number in range(10):
                pipeline.incr(f"counted:{number}")
            pipeline.execute()
    return 10 * CALLS


@pytest.mark.parametrize(
    ("name", "work", "others"),
    [("mariadb", mysql_work, {"prepare": 1, "child": 2 * CALLS}), ("redis", redis_work, {})],
    ids=["mariadb", "redis"],
)
def test_the_number_at_the_end_is_that_of_the_table(
    name: str,
    work: Callable[[DatabaseServer], int],
    others: dict[str, int],
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    server = request.getfixturevalue(name)
    children = ["--children"] if name == "mariadb" else []
    with recording(tmp_path / "t", "--pid", str(server.pid), *children) as recorder:
        made = work(server)
    pattern = r": ([\d,]+) calls(?: \(not counted as calls: (.*?)\))?, "
    (said,) = re.findall(pattern, recorder.said)
    calls = int(said[0].replace(",", ""))
    assert calls == sum(row["calls"] for row in attribute(tmp_path / "t")["rows"])
    assert calls >= made
    counted = {
        kind: int(number.replace(",", ""))
        for number, kind in re.findall(r"(\d[\d,]*) (\w+)", said[1])
    }
    assert others.items() <= counted.items()
    for kind, number in Run(tmp_path / "t").commands().items():
        assert kind in ("query", "execute") or counted[kind] == number
