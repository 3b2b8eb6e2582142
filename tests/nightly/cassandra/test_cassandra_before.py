# SPDX-License-Identifier: Apache-2.0
"""Statements that were prepared on a real Cassandra before the recording began."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
from cassandra.query import BatchStatement

from servers.process import DatabaseServer
from tracing import cql_story as day
from tracing.live_top import live_top
from tracing.recording import Run, qjoule, recording

pytestmark = [pytest.mark.root, pytest.mark.server]

STATEMENTS, EACH = 60, 20
SECRET = "hunter2-not-to-be-seen"


@pytest.fixture
def prepared(cassandra: DatabaseServer) -> Any:
    """A client, and its statements; each has a literal of its own, and one is in a keyspace."""
    with cassandra.connect() as client:
        day.set_up(client)
        statements = [
            client.session.prepare(
                f"SELECT id AS m_{number}, note FROM shop.orders "
                f"WHERE id = ? AND note = 'secret {number}' ALLOW FILTERING"
            )
            for number in range(STATEMENTS)
        ]
        client.execute("USE shop")
        statements.append(client.session.prepare("SELECT note FROM orders WHERE id = ?"))
        yield client, statements


def _credentials(directory: Path, text: str) -> Path:
    file = directory / "accounts.toml"
    file.write_text(text)
    file.chmod(0o600)  # root's, as the tests are
    return file


def _shapes() -> list[str]:
    texts = [
        f"select id as m_{number}, note from shop.orders where id = ? and note = ? allow filtering"
        for number in range(STATEMENTS)
    ]
    return [*texts, day.SELECT.replace("shop.", "")]


def test_they_have_their_texts_with_credentials(
    cassandra: DatabaseServer, prepared: Any, tmp_path: Path
) -> None:
    """From the first execution on, without an account, since this server has none."""
    client, statements = prepared
    file = _credentials(tmp_path, "[cassandra]\n")
    options = "--pid", str(cassandra.pid), "--ring-mb", "64", "--credentials", str(file)
    with recording(tmp_path / "t", *options) as recorder:
        for statement in statements:
            day.together(client, statement, ((n,) for n in range(EACH)))
        batch = BatchStatement()
        insert = client.session.prepare("INSERT INTO shop.orders (id, note) VALUES (?, ?)")
        batch.add(insert, (1, "secret"))
        client.execute(batch)
    run = Run(tmp_path / "t")
    counted = run.executions(command="execute")
    assert "--credentials" not in recorder.said, recorder.said
    assert {text: counted[text] for text in _shapes()} == dict.fromkeys(_shapes(), EACH)
    assert not [text for text in counted if "prepared before" in text]
    assert run.loss == {}
    assert not [text for text in run.trace.pandas("shapes")["text"] if "secret" in text]
    # It is asked in as few requests as there were moments with unknown statements.
    asked = Counter(run.having("system.prepared_statements")["text"])
    assert 1 <= asked.total() <= STATEMENTS // 2


def test_batches_of_them_are_shown_by_their_statements(
    cassandra: DatabaseServer, tmp_path: Path
) -> None:
    with cassandra.connect() as client:
        day.set_up(client)
        insert = client.session.prepare("INSERT INTO shop.orders (id, note) VALUES (?, ?)")
        file = _credentials(tmp_path, "[cassandra]\n")
        with recording(tmp_path / "t", "--pid", str(cassandra.pid), "--credentials", str(file)):
            for number in range(10):
                batch = BatchStatement()
                batch.add(insert, (number, "secret"))
                client.execute(batch)
    counted = Run(tmp_path / "t").executions()
    assert counted[f"begin batch; {day.INSERT}; apply batch"] == 10


def test_a_server_that_refuses_is_named_and_the_ids_stay(
    cassandra: DatabaseServer, prepared: Any, tmp_path: Path
) -> None:
    """The password is on no command line and in no trace, and the recording goes on."""
    client, (statement, *_) = prepared
    words = f'[cassandra]\nuser = "reader"\npassword = "{SECRET}"\nhost = "127.0.0.9"\n'
    file = _credentials(tmp_path, words)
    options = "--pid", str(cassandra.pid), "--credentials", str(file)
    with recording(tmp_path / "t", *options) as recorder:
        day.together(client, statement, ((n,) for n in range(EACH)))
        time.sleep(1)
        mine = psutil.Process(recorder.process.pid).children(recursive=True)
        shown = [
            part for process in mine for part in (*process.cmdline(), *process.environ().values())
        ]
        assert not [part for part in shown if SECRET in part]
    assert "system.prepared_statements cannot be read" in " ".join(recorder.said.split())
    counted = Run(tmp_path / "t").executions(command="execute")
    assert counted == {f"(prepared before tracing began: 0x{statement.query_id.hex()})": EACH}
    for directory, _, names in os.walk(tmp_path / "t"):
        for name in names:
            assert SECRET.encode() not in Path(directory, name).read_bytes()


@pytest.mark.parametrize(
    ("mode", "text", "why"),
    [
        (0o644, "[cassandra]\n", "others may read or change it"),
        (0o600, None, "No such file"),
    ],
)
def test_a_file_that_is_not_used(
    cassandra: DatabaseServer, tmp_path: Path, mode: int, text: str | None, why: str
) -> None:
    file = tmp_path / "accounts.toml"
    if text is not None:
        file.write_text(text)
        file.chmod(mode)
    done = qjoule(
        *("record", "-o", str(tmp_path / "t"), "--pid", str(cassandra.pid), "-d", "1"),
        *("--energy", "none", "--credentials", str(file)),
    )
    assert done.returncode == 1
    assert why in done.stderr
    assert not (tmp_path / "t").exists()


def test_doctor_says_beforehand_what_stays_unknown(cassandra: DatabaseServer) -> None:
    done = qjoule("doctor", "--traffic", "0")
    assert f"pid {cassandra.pid}" in done.stdout
    assert "with --credentials FILE" in " ".join(done.stdout.split())


def test_top_shows_texts_within_seconds(
    cassandra: DatabaseServer, prepared: Any, tmp_path: Path
) -> None:
    """At least 99 % of the executions from five seconds after the attach on."""
    client, statements = prepared
    file = _credentials(tmp_path, "[cassandra]\n")
    options = "--pid", str(cassandra.pid), "--energy", "none", "--credentials", str(file)
    with live_top(*options) as top:
        began = time.monotonic()
        before = 0
        while time.monotonic() < began + 8:
            if time.monotonic() > began + 5:
                before = before or len(top.snapshots)
            for statement in statements[:20]:
                day.together(client, statement, ((n,) for n in range(5)))
        snapshots = top.snapshots[before:]
    calls = Counter[str]()
    for snapshot in snapshots:
        for row in snapshot["interval"]["rows"]:
            if "where id = ?" in row["shape"] or "prepared before" in row["shape"]:
                calls[row["shape"]] += row["calls"]
    known = sum(n for shape, n in calls.items() if "prepared before" not in shape)
    assert calls.total() > 100, calls
    assert known >= 0.99 * calls.total(), calls
