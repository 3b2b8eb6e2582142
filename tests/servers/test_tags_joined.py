# SPDX-License-Identifier: Apache-2.0
"""Tags of real drivers joined to real servers' queries: each query gets its own tags, or none."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from contextlib import ExitStack, closing
from pathlib import Path
from queue import Queue
from typing import Any

import pandas as pd
import pytest

from qjoule_drivers import channel as channel_module
from qjoule_drivers import set_trace, tag
from qjoule_drivers.ring import SLOTS
from servers.process import DatabaseServer
from tracing import long_runs
from tracing.at_once import at_once
from tracing.recording import Recorder, Run, attribute, recording

pytestmark = [pytest.mark.root, pytest.mark.server]
QUERIES = long_runs.statements(4000)
CLIENTS = 32
#: CLIENTS times this is the number of tag sets: fewer than a socket holds definitions (278), so
#: that none is lost however late the recorder reads them.
KINDS = 4
TIMEOUT_S = 120


def _tags(run: Run) -> pd.DataFrame:
    """Queries with text and tags; `m` is the tag that is also in each text."""
    queries = run.having("m_tag_")
    queries = pd.DataFrame(queries[queries["command"] != "prepare"])  # psycopg prepares by itself
    tags = [dict(of) if isinstance(of, list) else None for of in queries["tags"]]
    return queries.assign(tags=pd.Series(tags, queries.index, dtype=object))


def _right(queries: pd.DataFrame) -> bool:
    expected = "m_tag_" + queries["tags"].map(lambda tags: (tags or {}).get("m", "?"))
    return bool((queries["text"].str.extract("(m_tag_[a-z0-9]+)")[0] == expected).all())


def _through_a_pool(connect: Any, work: Any) -> None:
    """CLIENTS threads that take any free connection for each query."""
    with ExitStack() as stack:
        pool: Queue[Any] = Queue()
        for number in range(CLIENTS):
            pool.put(stack.enter_context(closing(connect(number))))

        def client(number: int) -> None:
            for turn in range(QUERIES // CLIENTS):
                name = f"k{(number + turn) % KINDS}"
                connection = pool.get(timeout=TIMEOUT_S)
                with tag(m=name, client=str(number)):
                    work(connection, name)
                pool.put(connection)

        at_once(client, range(CLIENTS))


def _check(run: Run) -> None:
    queries = _tags(run)
    lost = run.loss.get("query", 0)
    assert len(queries) + lost == QUERIES // CLIENTS * CLIENTS
    # A recorder that gets no CPU for a second loses calls of a busy process. It reports how many,
    # and their queries have no tags rather than another's. A number of calls that fits into a ring
    # is not lost.
    untagged = int(queries["tags"].isna().sum())
    print(f"{QUERIES} queries, {untagged} without tags, {run.loss} lost")
    assert untagged <= run.loss.get("tags", 0)
    assert QUERIES > SLOTS // 2 or "tags" not in run.loss
    queries = pd.DataFrame(queries[queries["tags"].notna()])
    assert _right(queries)
    assert set(queries["tags"].map(lambda tags: tags["client"])) == {
        str(number) for number in range(CLIENTS)
    }


def test_mariadb_through_a_pool(mariadb: DatabaseServer, tags_socket: Path, tmp_path: Path) -> None:
    def work(connection: Any, name: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"select 1 as m_tag_{name}")
            cursor.fetchall()

    with recording(tmp_path / "t", "--pid", str(mariadb.pid)):
        # Half by TCP, half by the unix socket.
        _through_a_pool(lambda number: mariadb.connect(tcp=number % 2 == 0), work)
    _check(Run(tmp_path / "t"))
    rows = attribute(tmp_path / "t", "--by", "tag:m")["rows"]
    tagged = {row["tag:m"]: row["calls"] for row in rows if row.get("calls")}
    assert {f"k{n}" for n in range(KINDS)} <= tagged.keys()
    del tags_socket


def test_postgres_through_a_pool(
    postgres: DatabaseServer, tags_socket: Path, tmp_path: Path
) -> None:
    def work(connection: Any, name: str) -> None:
        connection.execute(f"select 1 as m_tag_{name}").fetchall()

    with recording(tmp_path / "t", "--pid", str(postgres.pid)):
        _through_a_pool(lambda number: postgres.connect(tcp=number % 2 == 0), work)
    _check(Run(tmp_path / "t"))
    del tags_socket


def test_redis_s_tags(redis: DatabaseServer, tags_socket: Path, tmp_path: Path) -> None:
    with (
        recording(tmp_path / "t", "--pid", str(redis.pid)),
        closing(redis.connect()) as unix,
        closing(redis.connect(tcp=True)) as tcp,
    ):
        for turn in range(100):
            for client, name in ((unix, "unix"), (tcp, "tcp")):
                with tag(m=name):
                    client.set(f"m_tag_{name}:{turn}", "x")
    queries = _tags(Run(tmp_path / "t"))
    assert len(queries) == 200
    assert _right(queries)
    del tags_socket


def test_connections_from_before_and_clients_without_a_shim(
    mariadb: DatabaseServer, tags_socket: Path, tmp_path: Path
) -> None:
    plain = f"""
        import pymysql
        connection = pymysql.connect(unix_socket={str(mariadb.socket)!r}, user="root")
        for _ in range(50):
            connection.query("select 1 as m_tag_plain")
        """
    with closing(mariadb.connect()) as before, recording(tmp_path / "t", "--pid", str(mariadb.pid)):
        stranger = subprocess.Popen([sys.executable, "-c", textwrap.dedent(plain)])
        for _ in range(50):
            with tag(m="before"):
                before.query("select 1 as m_tag_before")
        assert stranger.wait(TIMEOUT_S) == 0
    queries = _tags(Run(tmp_path / "t"))
    by_us = queries[queries["text"].str.contains("before")]
    assert len(by_us) == 50
    assert _right(by_us)
    assert queries[queries["text"].str.contains("plain")]["tags"].isna().all()
    del tags_socket


def test_a_recorder_that_is_killed_and_the_next_one(
    mariadb: DatabaseServer, tags_socket: Path, tmp_path: Path
) -> None:
    with closing(mariadb.connect()) as connection:
        recorder = Recorder(tmp_path / "a", "--energy", "none", "--pid", str(mariadb.pid))
        try:
            recorder.attached()
            with tag(m="a"):
                connection.query("select 1 as m_tag_a")
        finally:
            recorder.end()  # by SIGKILL
        with tag(m="between"):
            deadline = time.monotonic() + TIMEOUT_S
            while channel_module.channel._recorder is not None:
                assert time.monotonic() < deadline, "its end is not noticed"
                connection.query("select 1 as m_tag_between")
        with recording(tmp_path / "b", "--pid", str(mariadb.pid)), tag(m="b"):
            connection.query("select 1 as m_tag_b")
    (tags,) = _tags(Run(tmp_path / "b"))["tags"]
    assert tags == {"m": "b"}
    del tags_socket


def test_forked_workers(mariadb: DatabaseServer, tags_socket: Path, tmp_path: Path) -> None:
    code = f"""
        import os, pymysql, qjoule_drivers
        qjoule_drivers.instrument()
        def work(name):
            connection = pymysql.connect(unix_socket={str(mariadb.socket)!r}, user="root")
            with qjoule_drivers.tag(m=name):
                for _ in range(20):
                    connection.query("select 1 as m_tag_" + name)
        work("parent")
        for number in range(4):
            if not os.fork():
                work(f"child{{number}}")
                os._exit(0)
        for _ in range(4):
            os.wait()
        work("again")
        """
    with recording(tmp_path / "t", "--pid", str(mariadb.pid)):
        subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=TIMEOUT_S)
    queries = _tags(Run(tmp_path / "t"))
    assert len(queries) == 6 * 20
    assert _right(queries)
    del tags_socket


def test_one_request_over_two_servers(
    mariadb: DatabaseServer, postgres: DatabaseServer, tags_socket: Path, tmp_path: Path
) -> None:
    request = (bytes(range(16)), bytes(range(8)))
    with (
        recording(tmp_path / "t", "--pid", str(mariadb.pid), "--pid", str(postgres.pid)),
        closing(mariadb.connect()) as one,
        closing(postgres.connect()) as other,
    ):
        set_trace(request)
        try:
            with tag(m="both"):
                one.query("select 1 as m_tag_both")
                other.execute("select 1 as m_tag_both")
        finally:
            set_trace(None)
        other.execute("select 1 as m_tag_none")
    rows = attribute(tmp_path / "t", "--by", "tag:trace")["rows"]
    (row,) = [row for row in rows if row["tag:trace"] == request[0].hex()]
    assert row["calls"] == 2
    del tags_socket


def test_no_room_for_a_second_recorder(
    mariadb: DatabaseServer, tags_socket: Path, tmp_path: Path
) -> None:
    with (
        recording(tmp_path / "a", "--pid", str(mariadb.pid)),
        recording(tmp_path / "b", "--pid", str(mariadb.pid)) as second,
    ):
        assert "queries will not be tagged: another recorder takes the tags" in second.words
        with closing(mariadb.connect()) as connection, tag(m="x"):
            connection.query("select 1 as m_tag_x")
    assert _right(_tags(Run(tmp_path / "a")))
    assert _tags(Run(tmp_path / "b"))["tags"].isna().all()
    del tags_socket
