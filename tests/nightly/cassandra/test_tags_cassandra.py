# SPDX-License-Identifier: Apache-2.0
"""Tags of overlapping requests on one connection: CQL's stream id tells the calls apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from qjoule_drivers import tag
from servers.process import DatabaseServer
from tracing import cql_story as day
from tracing import long_runs
from tracing.recording import Run, attribute, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]
TAGS = 32
REQUESTS = long_runs.statements(1024) // TAGS * TAGS
IN_FLIGHT = 256
#: The agent's test takes equally long again.
RUNGS = ("statistical", "agent") if long_runs.ASKED else ("statistical",)
ENERGY = ("--energy", "estimated:5,10,20,40")


def _overlapping(server: DatabaseServer) -> None:
    """Requests of TAGS statements, each with its own tag, many at a time."""
    with server.connect() as client:
        statements = [
            client.session.prepare(f"SELECT note AS m_tag_{n} FROM shop.orders WHERE id = ?")
            for n in range(TAGS)
        ]
        waited_for = []
        for number in range(REQUESTS):
            which = number * 7 % TAGS
            with tag(m=str(which), half=str(which % 2)):
                waited_for.append(client.session.execute_async(statements[which], (number % 100,)))
            if len(waited_for) >= IN_FLIGHT:
                for future in waited_for:
                    future.result()
                waited_for.clear()
        for future in waited_for:
            future.result()


@pytest.mark.parametrize("rung", RUNGS)
def test_every_request_has_its_own_call_s_tags(
    cassandra: DatabaseServer, tags_socket: Path, tmp_path: Path, rung: str
) -> None:
    options = ("--agent",) if rung == "agent" else ()
    with cassandra.connect() as client:
        day.set_up(client)
    directory = tmp_path / "t"
    with recording(directory, "--pid", str(cassandra.pid), "--ring-mb", "64", *ENERGY, *options):
        _overlapping(cassandra)
    run = Run(directory)
    queries = run.having("m_tag_")
    queries = queries[queries["command"] == "execute"]
    assert set(queries["rung"]) == {rung}
    assert len(queries) + run.loss.get("query", 0) == REQUESTS
    assert "tags" not in run.loss
    told = [dict(tags)["m"] if isinstance(tags, list) else None for tags in queries["tags"]]
    assert told == list(queries["text"].str.extract(r"m_tag_(\d+)")[0])
    _halves_add_up(directory, rung)
    del tags_socket


def _halves_add_up(directory: Path, rung: str) -> None:
    """By tag: all calls of all statements that carry it."""
    rows = attribute(directory, "--by", "tag:half")["rows"]
    halves = {row["tag:half"]: row for row in rows if row["tag:half"] in ("0", "1")}
    for row in halves.values():
        assert row["calls"] >= REQUESTS // 2
        assert row["rung"] == rung
        assert ("statistical" in row["flags"]) == (rung == "statistical")
