# SPDX-License-Identifier: Apache-2.0
"""Statements prepared on a real Cassandra before the recording began, with --credentials."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
from cassandra.query import BatchStatement

from qjoule_studies.servers.cassandra import Client
from qjoule_studies.servers.process import DatabaseServer
from tracing import cql_story as day
from tracing.recording import Recorder, Run, credentials, qjoule, recording

pytestmark = [pytest.mark.root, pytest.mark.server]

STATEMENTS, EACH, BATCHES = 60, 20, 10
SECRET = "hunter2-not-to-be-seen"
SHAPES = [
    *(
        f"select id as m_{number}, note from shop.orders where id = ? and note = ? allow filtering"
        for number in range(STATEMENTS)
    ),
    day.SELECT.replace("shop.", ""),
]


@pytest.fixture(scope="module")
def client(cassandra: DatabaseServer) -> Iterator[Client]:
    with cassandra.connect() as client:
        day.set_up(client)
        yield client


@pytest.fixture(scope="module")
def statements(client: Client) -> list[Any]:
    """Each has a literal of its own, and one is in a keyspace."""
    prepared = [
        client.session.prepare(
            f"SELECT id AS m_{number}, note FROM shop.orders "
            f"WHERE id = ? AND note = 'secret {number}' ALLOW FILTERING"
        )
        for number in range(STATEMENTS)
    ]
    client.execute("USE shop")
    return [*prepared, client.session.prepare("SELECT note FROM orders WHERE id = ?")]


def _no_password_is_shown(recorder: Recorder) -> None:
    for process in psutil.Process(recorder.process.pid).children(recursive=True):
        shown = (*process.cmdline(), *process.environ().values())
        assert not [part for part in shown if SECRET in part]


def test_they_have_their_texts_if_the_server_tells(
    cassandra: DatabaseServer, client: Client, statements: list[Any], tmp_path: Path
) -> None:
    """From the first execution on, without an account, since this server has none. One that refuses
    is named, and the ids stay.
    """
    insert = client.session.prepare("INSERT INTO shop.orders (id, note) VALUES (?, ?)")
    section = '[cassandra]\nusers = ["nobody"]\n'
    refuses = f'{section}user = "reader"\npassword = "{SECRET}"\nhost = "127.0.0.9"\n'
    options = "--pid", str(cassandra.pid), "--ring-mb", "64"
    with ExitStack() as stack:
        asked, refused = (
            stack.enter_context(recording(tmp_path / name, *options, *credentials(tmp_path, text)))
            for name, text in (("asked", section), ("refused", refuses))
        )
        for statement in statements:
            day.together(client, statement, ((n,) for n in range(EACH)))
        for number in range(BATCHES):
            batch = BatchStatement()
            batch.add(insert, (number, "secret"))
            client.execute(batch)
        _no_password_is_shown(refused)
    run = Run(tmp_path / "asked")
    assert "--credentials" not in asked.said
    assert run.loss == {}
    counted = run.executions()
    assert {text: counted[text] for text in SHAPES} == dict.fromkeys(SHAPES, EACH)
    assert counted[f"begin batch; {day.INSERT}; apply batch"] == BATCHES
    assert not [text for text in counted if "prepared before" in text]
    assert not [text for text in run.trace.pandas("shapes")["text"] if "secret" in text]
    # It is asked in as few requests as there were moments with unknown statements.
    assert 1 <= len(run.having("system.prepared_statements")) <= STATEMENTS // 2
    assert "listens on 127.0.0.9" in " ".join(refused.said.split())
    ids = {f"(prepared before tracing began: 0x{one.query_id.hex()})": EACH for one in statements}
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
