# SPDX-License-Identifier: Apache-2.0
"""`record` ends with the number of calls that `attribute` has in its total, and counts the rest."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest

from qjoule_studies.servers.process import DatabaseServer
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


def test_the_number_at_the_end_is_that_of_the_table(
    mariadb: DatabaseServer, tmp_path: Path
) -> None:
    with recording(tmp_path / "t", "--pid", str(mariadb.pid), "--children") as recorder:
        made = mysql_work(mariadb)
    pattern = r": ([\d,]+) calls(?: \(not counted as calls: (.*?)\))?, "
    (said,) = re.findall(pattern, recorder.said)
    calls = int(said[0].replace(",", ""))
    assert calls == sum(row["calls"] for row in attribute(tmp_path / "t")["rows"])
    assert calls >= made
    counted = {
        kind: int(number.replace(",", ""))
        for number, kind in re.findall(r"(\d[\d,]*) (\w+)", said[1])
    }
    assert counted["prepare"] >= 1 and counted["child"] == 2 * CALLS
    for kind, number in Run(tmp_path / "t").commands().items():
        assert kind in ("query", "execute") or counted[kind] == number
