# SPDX-License-Identifier: Apache-2.0
"""Tags of overlapping requests to a Cassandra: by a shim on this host, or in their payloads.
Also: statements prepared before the recording.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
from cassandra.query import BatchStatement, SimpleStatement

from qjoule_drivers import tag
from qjoule_studies.servers.cassandra import Client
from qjoule_studies.servers.process import DatabaseServer
from tracing import cql_story as day
from tracing.recording import (
    LONG_RUN,
    Recorder,
    Run,
    attribute,
    credentials,
    qjoule,
    recording,
    statements,
)

pytestmark = [pytest.mark.root, pytest.mark.server]

#: How a client talks to the server; the long runs also use the other ways.
WAYS: dict[str, dict[str, Any]] = {
    "v5": {},
    "v5_lz4": {"compression": "lz4"},
    "v4_snappy": {"compression": "snappy", "protocol_version": 4},
}
if LONG_RUN:
    WAYS["v4"] = {"protocol_version": 4}
    WAYS["v4_lz4"] = {"compression": "lz4", "protocol_version": 4}
IN_FLIGHT = 64  #: requests of one connection
STATEMENTS = 8
REQUESTS = statements(600) // len(WAYS)
SELECT = "SELECT note AS m_{} FROM shop.orders WHERE id = {}"
THEIRS = {"trace-id": b"x" * 700, "qjoule": b"", "xqjoule.endpoint": b"x"}
ENERGY = ("--energy", "estimated:5,10,20,40")

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
        with tag(endpoint=f"/{way}/{number}", half=str(number % 2)):
            waited_for.append(client.session.execute_async(statements[number], (turn % 100,)))
        sent[f"execute {way}_{number}", f"/{way}/{number}"] += 1
        if len(waited_for) == IN_FLIGHT:
            waited_for.pop(0).result()
    for future in waited_for:
        future.result()
    return sent


def _others(client: Client, way: str) -> Tagged:
    """Requests as text, in a batch, in pages, with other payloads, and without tags."""
    sent: Tagged = Counter()
    batch = BatchStatement()
    batch.add("DELETE FROM shop.orders WHERE id = 1000")
    batch.add("INSERT INTO shop.orders (id, note) VALUES (1001, 'x')")

    def send(kind: str, endpoint: str | None, **options: Any) -> None:
        statement = batch if kind == "batch" else SELECT.format(kind, 1)
        if endpoint is None:
            client.session.execute(statement, **options)
        else:
            with tag(endpoint=endpoint):
                client.session.execute(statement, **options)
        sent[f"query {kind}", endpoint] += 1

    send(f"{way}_text", f"/{way}/it's *")
    send(f"{way}_both", f"/{way}/both", custom_payload=THEIRS)
    send(f"{way}_long", f"/{way}/{'x' * 200}")
    send("batch", f"/{way}/batch")
    send("batch", None)
    send(f"{way}_theirs", None, custom_payload=THEIRS)
    send(f"{way}_bare", None)
    with tag(endpoint=f"/{way}/page"):
        text = f"SELECT id AS m_{way}_page FROM shop.orders"
        pages = client.session.execute(SimpleStatement(text, fetch_size=25))
        sent[f"query {way}_page", f"/{way}/page"] += 1
        while pages.has_more_pages:
            pages.fetch_next_page()
            sent[f"query {way}_page", f"/{way}/page"] += 1
    assert sent[f"query {way}_page", f"/{way}/page"] > 1
    return sent


def _tagged(run: Run) -> Tagged:
    counts: Tagged = Counter()
    marks = run.queries["text"].str.extract(r"\bm_(\w+)")[0]
    marks = marks.mask(run.queries["text"].str.contains("apply batch", na=False), "batch")
    rows = zip(run.queries["command"], marks, run.queries["tags"], strict=True)
    for command, mark, tags in rows:
        if isinstance(mark, str):
            endpoint = dict(tags) if isinstance(tags, list) else {}
            counts[f"{command} {mark}", endpoint.get("endpoint")] += 1
    return counts


@pytest.mark.beside
@pytest.mark.usefixtures("elsewhere")
def test_every_request_has_what_its_driver_sends(cassandra: DatabaseServer, tmp_path: Path) -> None:
    with cassandra.connect() as client:
        day.set_up(client)
        insert = client.session.prepare("INSERT INTO shop.orders (id, note) VALUES (?, 'x')")
        day.together(client, insert, ((key,) for key in range(100)))
    server = ("--pid", str(cassandra.pid), "--ring-mb", "64")
    sent: Tagged = Counter()
    with (
        recording(tmp_path / "asked", *server, "--client-tags"),
        recording(tmp_path / "agent", *server, "--client-tags", "--agent"),
    ):
        for way, options in WAYS.items():
            with cassandra.connect(**options) as client:
                sent += _overlapping(client, way) + _others(client, way)
    without_agent, by_agent = (Run(tmp_path / name) for name in ("asked", "agent"))
    assert without_agent.loss == by_agent.loss == {}
    assert set(without_agent.queries["attach_mode"]) == {"statistical"}
    assert set(by_agent.queries["attach_mode"]) == {"agent"}
    assert _tagged(without_agent) == _tagged(by_agent) == sent


@pytest.mark.beside
@pytest.mark.parametrize("options", [(), ("--agent",)], ids=["statistical", "agent"])
def test_every_request_has_its_own_call_s_tags(
    cassandra: DatabaseServer, tags_socket: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """A shim on this host reports the calls; CQL's stream id distinguishes concurrent ones."""
    server = ("--pid", str(cassandra.pid), "--ring-mb", "64")
    with cassandra.connect() as client:
        day.set_up(client)
    with recording(tmp_path / "t", *server, *ENERGY, *options), cassandra.connect() as client:
        sent = _overlapping(client, "v5")
    run = Run(tmp_path / "t")
    assert run.loss == {}
    executed = {key: n for key, n in sent.items() if key[0].startswith("execute")}
    counts = _tagged(run)
    assert {key: counts[key] for key in executed} == executed
    rows = attribute(tmp_path / "t", "--by", "tag:half")["rows"]
    halves = [row for row in rows if row["tag:half"] in ("0", "1")]
    assert sum(row["calls"] for row in halves) == REQUESTS
    for row in halves:
        assert ("statistical" in row["flags"]) == (not options)
    del tags_socket


# --------------------------------------------------------------------------------------------------
#
# Statements prepared on a real Cassandra before the recording began, with --credentials.

PREPARED_BEFORE, EACH, BATCHES = 60, 20, 10
SECRET = "hunter2-not-to-be-seen"
SHAPES = [
    *(
        f"select id as m_{number}, note from shop.orders where id = ? and note = ? allow filtering"
        for number in range(PREPARED_BEFORE)
    ),
    day.SELECT.replace("shop.", ""),
]


@pytest.fixture(scope="module")
def client(cassandra: DatabaseServer) -> Iterator[Client]:
    with cassandra.connect() as client:
        day.set_up(client)
        yield client


@pytest.fixture(scope="module")
def statements_before(client: Client) -> list[Any]:
    """Statements with a literal each; one is prepared within a keyspace."""
    prepared = [
        client.session.prepare(
            f"SELECT id AS m_{number}, note FROM shop.orders "
            f"WHERE id = ? AND note = 'secret {number}' ALLOW FILTERING"
        )
        for number in range(PREPARED_BEFORE)
    ]
    client.execute("USE shop")
    return [*prepared, client.session.prepare("SELECT note FROM orders WHERE id = ?")]


def _no_password_is_shown(recorder: Recorder) -> None:
    for process in psutil.Process(recorder.process.pid).children(recursive=True):
        texts = (*process.cmdline(), *process.environ().values())
        assert not [part for part in texts if SECRET in part]


def test_they_have_their_texts_if_the_server_tells(
    cassandra: DatabaseServer, client: Client, statements_before: list[Any], tmp_path: Path
) -> None:
    """Statements that were prepared before have texts from their first execution on; this server
    needs no account. Where the server refuses, a message says so and the ids stay.
    """
    insert = client.session.prepare("INSERT INTO shop.orders (id, note) VALUES (?, ?)")
    section = '[cassandra]\nusers = ["nobody"]\n'
    refuses = f'{section}user = "reader"\npassword = "{SECRET}"\nhost = "127.0.0.9"\n'
    options = "--pid", str(cassandra.pid), "--ring-mb", "64"
    with ExitStack() as stack:
        without_account, at_other_address = (
            stack.enter_context(recording(tmp_path / name, *options, *credentials(tmp_path, text)))
            for name, text in (("asked", section), ("refused", refuses))
        )
        for statement in statements_before:
            day.together(client, statement, ((n,) for n in range(EACH)))
        for number in range(BATCHES):
            batch = BatchStatement()
            batch.add(insert, (number, "secret"))
            client.execute(batch)
        _no_password_is_shown(at_other_address)
    run = Run(tmp_path / "asked")
    assert "--credentials" not in without_account.messages
    assert run.loss == {}
    counted = run.executions()
    assert {text: counted[text] for text in SHAPES} == dict.fromkeys(SHAPES, EACH)
    assert counted[f"begin batch; {day.INSERT}; apply batch"] == BATCHES
    assert not [text for text in counted if "prepared before" in text]
    assert not [text for text in run.trace.pandas("shapes")["text"] if "secret" in text]
    # It is asked in as few requests as there were moments with unknown statements.
    assert 1 <= len(run.having("system.prepared_statements")) <= PREPARED_BEFORE // 2
    assert "listens on 127.0.0.9" in " ".join(at_other_address.messages.split())
    ids = {
        f"(prepared before tracing began: 0x{statement.query_id.hex()})": EACH
        for statement in statements_before
    }
    counted = Run(tmp_path / "refused").executions(command="execute")
    assert {text: counted[text] for text in ids} == ids
    for directory, _, names in os.walk(tmp_path / "refused"):
        for name in names:
            assert SECRET.encode() not in Path(directory, name).read_bytes()


def test_a_file_that_others_may_read_is_refused(cassandra: DatabaseServer, tmp_path: Path) -> None:
    options = credentials(tmp_path, "[cassandra]\n", 0o644)
    done = qjoule(
        *("record", "-o", str(tmp_path / "t"), "--pid", str(cassandra.pid), "-d", "1"),
        *("--energy", "none", *options),
    )
    assert done.returncode == 1
    assert "others may read or change it" in done.stderr
    assert not (tmp_path / "t").exists()
