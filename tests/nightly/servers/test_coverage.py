# SPDX-License-Identifier: Apache-2.0
"""Nearly all CPU time of a server under load has a named owner."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from servers.process import DatabaseServer
from tracing.recording import attribute, recording

pytestmark = [pytest.mark.root, pytest.mark.server]

QUERIES = 3000


def _mysql(connection: Any) -> Callable[[int], object]:
    cursor = connection.cursor()
    return lambda number: cursor.execute(f"SELECT SUM(seq * {number}) FROM seq_1_to_100")


def _postgres(connection: Any) -> Callable[[int], object]:
    return lambda number: connection.execute(
        f"SELECT sum(i * {number}) FROM generate_series(1, 99) i"
    )


def _redis(client: Any) -> Callable[[int], object]:
    return lambda number: client.set(f"key:{number}", number)


@pytest.mark.parametrize(
    ("name", "prepare"), [("mariadb", _mysql), ("postgres", _postgres), ("redis", _redis)]
)
def test_cpu_time_has_a_name(
    name: str,
    prepare: Callable[[Any], Callable[[int], object]],
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    server: DatabaseServer = request.getfixturevalue(name)
    with recording(tmp_path / "t", "--pid", str(server.pid)), server.connect() as connection:
        if name == "mariadb":
            connection.select_db("mysql")
        run = prepare(connection)
        for number in range(QUERIES):
            run(number)
    document = attribute(tmp_path / "t")
    ((label, told),) = document["coverage_by_server"].items()
    assert label == f"{name}:{server.port}"
    assert told["named"] >= 0.98
    assert told["queries"] > 0.5
    assert told["named"] == pytest.approx(told["queries"] + told["roles"])
    rows = [row for row in document["rows"] + document["fixed"] if row["server"] == label]
    assert told["cpu_ns"] == sum(row["cpu_ns"] for row in rows)
