"""All servers under one recording: each has its own queries, all of them, and no other's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from root.support.recording import Run, recording
from servers.process import DatabaseServer

pytestmark = [pytest.mark.root, pytest.mark.server]


def _sql(column: str) -> Callable[[Any, int], object]:
    """A statement that no other server gets, so that each is told under its own server."""

    def run(connection: Any, number: int) -> object:
        with connection.cursor() as cursor:
            return cursor.execute(f"SELECT {number} AS {column}")

    return run


#: By fixture: what is run, how often, and its shape.
LOADS: dict[str, tuple[Callable[[Any, int], object], int, str]] = {
    "mariadb": (_sql("one"), 2000, "SELECT ? AS one"),
    "mysql80": (_sql("two"), 2000, "SELECT ? AS two"),
    "postgres": (_sql("three"), 2000, "SELECT ? AS three"),
    "redis": (lambda client, number: client.get(f"four:{number}"), 2000, "GET four:?"),
    "voltdb": (
        lambda client, number: client.sql(f"SELECT COUNT(*) FROM five WHERE id = {number}"),
        50,
        "SELECT COUNT(*) FROM five WHERE id = ?",
    ),
}


def test_all_at_once(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    servers: dict[str, DatabaseServer] = {name: request.getfixturevalue(name) for name in LOADS}
    with ExitStack() as stack:
        clients = {name: stack.enter_context(one.connect()) for name, one in servers.items()}
        clients["voltdb"].sql("CREATE TABLE five (id INTEGER)")
        chosen = (word for one in servers.values() for word in ("--pid", str(one.pid)))
        stack.enter_context(recording(tmp_path / "t", *chosen, "--ring-mb", "64"))
        threads = [
            threading.Thread(target=_repeat, args=(clients[name], run, count))
            for name, (run, count, _) in LOADS.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        clients["voltdb"].sql("DROP TABLE five")
    run = Run(tmp_path / "t")
    assert not run.loss.keys() & {"query", "framing", "state"}, run.loss
    for name, (_, count, text) in LOADS.items():
        found = run.queries[run.queries["text"].str.casefold() == text.casefold()]
        assert int(found["executions"].sum()) == count, (name, run.executions().most_common(12))
        assert found["server"].nunique() == 1, name


def _repeat(client: Any, run: Callable[[Any, int], object], count: int) -> None:
    for number in range(1, count + 1):
        run(client, number)
