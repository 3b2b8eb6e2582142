# SPDX-License-Identifier: Apache-2.0
"""Counts and texts on real MariaDB and MySQL: what the clients sent equals what the trace
contains.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from qjoule.contract import QueryFlag
from servers.process import DatabaseServer
from tracing import mysql_story as day
from tracing.mysql_client import CHUNK, mysql_client
from tracing.recording import Run, attribute, both_rungs, qjoule, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]


@dataclass
class Told:
    story: day.Story
    run: Run
    rung: str
    directory: Path


def _tell(server: DatabaseServer, directory: Path, pool: bool = False) -> dict[str, Told]:
    day.prepare_server(server)
    before = day.Before(server)
    if pool:
        with recording(directory / "symbol", "--pid", str(server.pid), "--ring-mb", "64"):
            story = day.tell(server, before, directory)
    else:
        with both_rungs(directory, server.pid):
            story = day.tell(server, before, directory)
    rungs = ("symbol",) if pool else ("socket", "symbol")
    return {rung: Told(story, Run(directory / rung), rung, directory / rung) for rung in rungs}


@pytest.fixture(scope="module")
def on_mariadb(
    mariadb: DatabaseServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Told]:
    return _tell(mariadb, tmp_path_factory.mktemp("mariadb"))


@pytest.fixture(scope="module")
def on_mysql80(
    mysql80: DatabaseServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Told]:
    return _tell(mysql80, tmp_path_factory.mktemp("mysql"))


@pytest.fixture(scope="module")
def on_pool(
    mariadb_pool: DatabaseServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Told]:
    return _tell(mariadb_pool, tmp_path_factory.mktemp("pool"), pool=True)


@pytest.fixture(
    params=[
        ("on_mariadb", "socket"),
        ("on_mariadb", "symbol"),
        ("on_mysql80", "socket"),
        ("on_mysql80", "symbol"),
        ("on_pool", "symbol"),
    ],
    ids="-".join,
)
def told(request: pytest.FixtureRequest) -> Told:
    server, rung = request.param
    result: Told = request.getfixturevalue(server)[rung]
    return result


def test_nothing_is_lost(told: Told) -> None:
    assert told.run.loss == {}
    assert told.run.trace.complete
    assert set(told.run.queries["rung"]) == {told.rung}


def test_every_statement_counts_under_its_own_shape(told: Told) -> None:
    assert day.marker_counts(told.run.queries) == told.story.sent


def test_counts_equal_the_servers_own(told: Told) -> None:
    """Com_select and so on over sysbench's part, prepared and text together: 90,000 statements."""
    executions: Counter[str] = Counter()
    for text, count in told.run.executions().items():
        if not day.MARKER.search(text) and ("sbtest1" in text or text in ("begin", "commit")):
            executions[text.split()[0]] += count
    counted = {name: told.story.counted[f"Com_{name}"] for name in day.STATUS}
    assert {name: executions[name] for name in day.STATUS} == counted
    assert sum(counted.values()) > 80_000


def test_commands_are_told_apart(told: Told) -> None:
    commands = told.run.commands()
    during_sysbench = told.story.counted["Com_stmt_prepare"]
    assert commands["prepare"] == during_sysbench + told.story.prepares
    executed = told.run.executions(command="execute")
    prepared = told.story.counted["Com_stmt_execute"]
    assert executed["select c from sbtest1 where id = ?"] == prepared == day.POINT_SELECTS
    assert not executed.keys() & told.run.executions(command="prepare").keys()


def test_prepared_before_attach_has_its_text(told: Told) -> None:
    nameless = told.run.flagged(QueryFlag.NO_TEXT)
    assert not nameless["executions"].any()
    before = told.run.executions(command="execute")["select ? as m_before"]
    assert before == told.story.executed_before_attach
    rows = attribute(told.directory)["rows"]
    assert not [row["shape"] for row in rows if "prepared before" in (row["shape"] or "")]


def test_load_data_is_one_query_to_its_end(told: Told) -> None:
    (load,) = told.run.having("m_loaded").to_dict("records")
    (after,) = told.run.having("m_after_load").to_dict("records")
    assert load["end_ns"] <= after["begin_ns"]
    # Its data follows the statement and takes nearly all of the time, so it belongs to it.
    assert after["begin_ns"] - load["end_ns"] < load["end_ns"] - load["begin_ns"]


def test_long_statements_are_marked(told: Told) -> None:
    lengths = told.run.having("m_length_")
    for text, size, flags in zip(
        lengths["text"], lengths["statement_bytes"], lengths["flags"], strict=True
    ):
        sent = int(text.split("m_length_")[1].split(",")[0])
        # The socket rung knows only the length of the first packet: 16 MB, less its command byte.
        assert size == (min(sent, CHUNK - 1) if told.rung == "socket" else sent)
        assert bool(flags & QueryFlag.TRUNCATED) == (sent > 4096)


def test_a_query_that_was_killed_ends(told: Told) -> None:
    assert len(told.run.having("m_kill_query")) == 1
    assert told.run.having("m_kill_query")["status"].isna().all()
    (killed,) = told.run.having("m_kill_session").to_dict("records")
    assert killed["end_ns"] > killed["begin_ns"]


def test_both_rungs_agree(on_mariadb: dict[str, Told], on_mysql80: dict[str, Told]) -> None:
    for pair in (on_mariadb, on_mysql80):
        assert pair["socket"].run.executions() == pair["symbol"].run.executions()


def test_control_characters_do_not_reach_the_table(told: Told) -> None:
    table = qjoule("attribute", str(told.directory), "--top", "1000").stdout
    assert "m_escape" in table
    assert not {c for c in table if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160}


def test_a_suspended_command_is_one_query(mariadb_pool: DatabaseServer, tmp_path: Path) -> None:
    """A pool of threads suspends commits that wait for the disk, and resumes them elsewhere."""
    day.prepare_server(mariadb_pool)
    with closing(mariadb_pool.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("set global innodb_flush_log_at_trx_commit = 1")
        try:
            with recording(tmp_path / "t", "--pid", str(mariadb_pool.pid)):
                before = day.status(mariadb_pool)["Com_update"]
                text = ("--db-ps-mode=disable", "--events=2000")
                day.sysbench(mariadb_pool, "oltp_update_non_index", "run", *text)
                sent = day.status(mariadb_pool)["Com_update"] - before
        finally:
            cursor.execute("set global innodb_flush_log_at_trx_commit = 0")
    run = Run(tmp_path / "t")
    updates = run.having("update sbtest1")
    assert updates["executions"].sum() == len(updates) == sent
    if run.flagged(QueryFlag.RESUMED).empty:
        pytest.skip("this MariaDB suspended no command: its disk answers too fast")


@pytest.fixture
def encrypted(mysql80: DatabaseServer, tmp_path: Path) -> Iterator[tuple[Run, int]]:
    sessions = 50
    with recording(tmp_path / "t", "--pid", str(mysql80.pid), "--rung", "socket"):
        for number in range(sessions):
            with closing(mysql80.connect(ssl={})) as connection, connection.cursor() as cursor:
                cursor.execute("select 1 as m_hidden")
            with mysql_client(mysql80.socket) as client:
                client.query(b"select 1 as m_plain")
            del number
    yield Run(tmp_path / "t"), sessions


def test_encrypted_sessions_are_counted_and_never_guessed(encrypted: tuple[Run, int]) -> None:
    """Plain and encrypted clients take turns on the same threads."""
    run, sessions = encrypted
    assert day.marker_counts(run.queries) == {"m_plain": sessions}
    assert run.loss == {"opaque_session": sessions}
    assert list(run.trace.pandas("sessions")["event"]).count("opaque") == sessions
