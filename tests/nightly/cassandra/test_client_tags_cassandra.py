# SPDX-License-Identifier: Apache-2.0
"""Tags of Cassandra clients on other hosts: the custom payload of each request carries its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cassandra.query import BatchStatement, SimpleStatement

from qjoule_drivers import tag
from servers.cassandra import Client
from servers.process import DatabaseServer
from tracing import cql_story as day
from tracing import long_runs
from tracing.live_top import live_top
from tracing.recording import Run, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

#: How a client talks to the server; the long runs also use the other ways.
WAYS: dict[str, dict[str, Any]] = {
    "v5": {},
    "v5_lz4": {"compression": "lz4"},
    "v4_snappy": {"compression": "snappy", "protocol_version": 4},
}
if long_runs.ASKED:
    WAYS["v4"] = {"protocol_version": 4}
    WAYS["v4_lz4"] = {"compression": "lz4", "protocol_version": 4}
IN_FLIGHT = 32  #: requests of one connection
STATEMENTS = 8
REQUESTS = long_runs.statements(600) // len(WAYS)
SELECT = "SELECT note AS m_{} FROM shop.orders WHERE id = {}"
LIVE = 60  #: requests counted by the live view
THEIRS = {"trace-id": b"x" * 700, "qjoule": b"", "xqjoule.endpoint": b"x"}

Tagged = Counter[tuple[str, str | None]]  #: the statement of a query, and its endpoint


def _overlapping(client: Client, way: str) -> Tagged:
    """Many requests at a time on one connection; the statement determines the tag."""
    sent: Tagged = Counter()
    statements = []
    for number in range(STATEMENTS):
        endpoint = f"/{way}/{number}"
        with tag(endpoint=endpoint):
            statements.append(client.session.prepare(SELECT.format(f"{way}_{number}", "?")))
        sent[f"prepare {way}_{number}", endpoint] += 1
    waited_for: list[Any] = []
    for turn in range(REQUESTS):
        number = turn * 7 % STATEMENTS
        with tag(endpoint=f"/{way}/{number}"):
            waited_for.append(client.session.execute_async(statements[number], (turn % 100,)))
        sent[f"execute {way}_{number}", f"/{way}/{number}"] += 1
        if len(waited_for) == IN_FLIGHT:
            waited_for.pop(0).result()
    for future in waited_for:
        future.result()
    return sent


def _others(client: Client, way: str) -> Tagged:
    """Text, a batch, pages, payloads of others; and requests without tags."""
    sent: Tagged = Counter()

    def one(what: str, run: Callable[[str], object], endpoint: str | None) -> None:
        if endpoint is None:
            run(what)
        else:
            with tag(endpoint=endpoint):
                run(what)
        sent[f"query {what}", endpoint] += 1

    def text(what: str, **options: Any) -> None:
        client.session.execute(SELECT.format(what, 1), **options)

    def batch(_: str) -> None:
        statements = BatchStatement()
        statements.add("DELETE FROM shop.orders WHERE id = 1000")
        statements.add("INSERT INTO shop.orders (id, note) VALUES (1001, 'x')")
        client.session.execute(statements)

    one(f"{way}_text", text, f"/{way}/it's *")
    one(f"{way}_both", lambda what: text(what, custom_payload=THEIRS), f"/{way}/both")
    one(f"{way}_long", text, f"/{way}/{'x' * 200}")
    one("batch", batch, f"/{way}/batch")
    one("batch", batch, None)
    one(f"{way}_theirs", lambda what: text(what, custom_payload=THEIRS), None)
    one(f"{way}_bare", text, None)
    with tag(endpoint=f"/{way}/page"):
        statement = SimpleStatement(f"SELECT id AS m_{way}_page FROM shop.orders", fetch_size=25)
        pages = client.session.execute(statement)
        sent[f"query {way}_page", f"/{way}/page"] += 1
        while pages.has_more_pages:
            pages.fetch_next_page()
            sent[f"query {way}_page", f"/{way}/page"] += 1
    assert sent[f"query {way}_page", f"/{way}/page"] > 1
    return sent


def _story(server: DatabaseServer) -> Tagged:
    sent: Tagged = Counter()
    for way, options in WAYS.items():
        with server.connect(**options) as client:
            sent += _overlapping(client, way) + _others(client, way)
    return sent


def _tagged(run: Run) -> Tagged:
    found: Tagged = Counter()
    marks = run.queries["text"].str.extract(r"\bm_(\w+)")[0]
    marks = marks.mask(run.queries["text"].str.contains("apply batch", na=False), "batch")
    rows = zip(run.queries["command"], marks, run.queries["tags"], strict=True)
    for command, mark, tags in rows:
        if isinstance(mark, str):
            endpoint = dict(tags) if isinstance(tags, list) else {}
            found[f"{command} {mark}", endpoint.get("endpoint")] += 1
    return found


@pytest.mark.usefixtures("elsewhere")
def test_every_request_has_what_its_driver_sends(cassandra: DatabaseServer, tmp_path: Path) -> None:
    """And a recording that was not asked to read tags has none."""
    with cassandra.connect() as client:
        day.set_up(client)
        insert = client.session.prepare("INSERT INTO shop.orders (id, note) VALUES (?, 'x')")
        day.together(client, insert, ((key,) for key in range(100)))
    server = ("--pid", str(cassandra.pid), "--ring-mb", "64")
    with (
        recording(tmp_path / "asked", *server, "--client-tags"),
        recording(tmp_path / "agent", *server, "--client-tags", "--agent"),
        recording(tmp_path / "unasked", *server),
    ):
        sent = _story(cassandra)
    asked, agent, unasked = (Run(tmp_path / name) for name in ("asked", "agent", "unasked"))
    assert asked.loss == agent.loss == unasked.loss == {}
    assert set(asked.queries["rung"]) == {"statistical"}
    assert set(agent.queries["rung"]) == {"agent"}
    assert _tagged(asked) == _tagged(agent) == sent
    assert len(unasked.queries) >= sent.total()
    assert unasked.queries["tags"].isna().all()


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("options", [(), ("--agent",)], ids=["statistical", "agent"])
def test_the_live_view_counts_by_them(cassandra: DatabaseServer, options: tuple[str, ...]) -> None:
    asked = ("--pid", str(cassandra.pid), "--client-tags", "--by", "tag:endpoint", *options)
    with live_top(*asked) as top, cassandra.connect() as client:
        for turn in range(LIVE):
            with tag(endpoint=f"/{turn % 3}"):
                client.session.execute("SELECT key AS m_live FROM system.local")
        with tag(endpoint="last"):
            for _ in range(LIVE):
                client.session.execute("SELECT key AS m_live FROM system.local")
        snapshots = top.finish(lambda row: row["tag:endpoint"] == "last" and row["calls"] > 0)
    live: Counter[str] = Counter()
    for snapshot in snapshots:
        for row in snapshot["interval"]["rows"]:
            live[row["tag:endpoint"]] += row["calls"]
    assert [live[f"/{number}"] for number in range(3)] == [LIVE // 3] * 3
