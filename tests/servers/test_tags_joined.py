# SPDX-License-Identifier: Apache-2.0
"""Tags of real drivers joined to real servers' queries: each query gets its own tags, or none."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from queue import Queue
from typing import Any

import pandas as pd
import pytest

from qjoule_drivers import channel as channel_module
from qjoule_drivers import set_trace, tag
from qjoule_drivers.ring import SLOTS
from qjoule_studies.servers.process import DatabaseServer
from tag_listener import reporting_to
from tracing.recording import Recorder, Run, at_once, attribute, recording, statements

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

QUERIES = statements(3000)  #: of each pool
CLIENTS = 32
#: CLIENTS times this is the number of tag sets: fewer than a socket holds definitions (278), so
#: that none is lost however late the recorder reads them.
KINDS = 4
TIMEOUT_S = 120
REQUEST = (bytes(range(16)), bytes(range(8)))  #: a trace id and a span id


@pytest.fixture(scope="module")
def drivers() -> Iterator[None]:
    """This module's recorders and this process, with wrapped drivers, meet at one socket."""
    # A recorder drops root's rights, and leaves the socket behind.
    path = Path(f"/tmp/qjoule-tags-{os.getpid()}-joined.sock")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QJOULE_TAGS_SOCKET", str(path))
        with reporting_to(path):
            yield
    path.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def directory(
    drivers: None,  # noqa: ARG001
    mariadb: DatabaseServer,
    postgres: DatabaseServer,
    redis: DatabaseServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Traces of two recorders: the first takes the tags, the second is refused them."""
    directory = tmp_path_factory.mktemp("joined")
    pids = [f"--pid={server.pid}" for server in (mariadb, postgres, redis)]
    with (
        closing(mariadb.connect()) as before,
        recording(directory / "t", *pids, "--ring-mb", "64"),
        recording(directory / "second", *pids, "--ring-mb", "64") as second,
    ):
        assert "queries will not be tagged: another recorder takes the tags" in second.messages
        # Half by TCP, half by the unix socket.
        _through_a_pool("maria", lambda number: mariadb.connect(tcp=number % 2 == 0))
        _through_a_pool("pg", lambda number: postgres.connect(tcp=number % 2 == 0))
        _redis(redis)
        for _ in range(50):
            with tag(m="before"):
                before.query("select 1 as m_tag_before")
        _over_two_servers(mariadb, postgres)
    return directory


def _through_a_pool(server: str, connect: Any) -> None:
    """CLIENTS threads that take any free connection for each query."""
    with ExitStack() as stack:
        pool: Queue[Any] = Queue()
        for number in range(CLIENTS):
            pool.put(stack.enter_context(closing(connect(number))))

        def client(number: int) -> None:
            for turn in range(QUERIES // CLIENTS):
                name = f"{server}{(number + turn) % KINDS}"
                connection = pool.get(timeout=TIMEOUT_S)
                with tag(m=name, client=str(number)), connection.cursor() as cursor:
                    cursor.execute(f"select 1 as m_tag_{name}")
                    cursor.fetchall()
                pool.put(connection)

        at_once(client, range(CLIENTS))


def _redis(redis: DatabaseServer) -> None:
    with closing(redis.connect()) as unix, closing(redis.connect(tcp=True)) as tcp:
        for turn in range(100):
            for client, name in ((unix, "unix"), (tcp, "tcp")):
                with tag(m=name):
                    client.set(f"m_tag_{name}:{turn}", "x")


def _over_two_servers(mariadb: DatabaseServer, postgres: DatabaseServer) -> None:
    with closing(mariadb.connect()) as to_mariadb, closing(postgres.connect()) as to_postgres:
        set_trace(REQUEST)
        try:
            with tag(m="both"):
                to_mariadb.query("select 1 as m_tag_both")
                to_postgres.execute("select 1 as m_tag_both")
        finally:
            set_trace(None)
        to_postgres.execute("select 1 as m_tag_plain")


def _tags(run: Run, word: str = "m_tag_") -> pd.DataFrame:
    """Queries with text and tags; `m` is the tag that is also in each text."""
    queries = run.having(word)
    queries = pd.DataFrame(queries[queries["command"] != "prepare"])  # psycopg prepares by itself
    tags = [dict(pairs) if isinstance(pairs, list) and pairs else None for pairs in queries["tags"]]
    return queries.assign(tags=pd.Series(tags, queries.index, dtype=object))


def _have_their_own(queries: pd.DataFrame) -> bool:
    expected = "m_tag_" + queries["tags"].map(lambda tags: (tags or {}).get("m", "?"))
    return bool((queries["text"].str.extract("(m_tag_[a-z0-9]+)")[0] == expected).all())


@pytest.mark.parametrize("server", ["maria", "pg"])
def test_queries_through_a_pool_have_their_own_tags(directory: Path, server: str) -> None:
    run = Run(directory / "t")
    queries = _tags(run, f"m_tag_{server}")
    assert len(queries) + run.loss.get("query", 0) == QUERIES // CLIENTS * CLIENTS
    # A recorder that gets no CPU for a second loses calls of a busy process. It reports how many,
    # and their queries have no tags rather than another's. A number of calls that fits into a ring
    # is not lost.
    untagged = int(queries["tags"].isna().sum())
    assert untagged <= run.loss.get("tags", 0)
    assert 2 * QUERIES > SLOTS // 2 or "tags" not in run.loss
    queries = pd.DataFrame(queries[queries["tags"].notna()])
    assert _have_their_own(queries)
    assert set(queries["tags"].map(lambda tags: tags["client"])) == set(map(str, range(CLIENTS)))


@pytest.mark.parametrize(("name", "count"), [("unix", 100), ("tcp", 100), ("before", 50)])
def test_redis_s_queries_and_connections_from_before(
    directory: Path, name: str, count: int
) -> None:
    queries = _tags(Run(directory / "t"), f"m_tag_{name}")
    assert len(queries) == count
    assert _have_their_own(queries)


def test_without_a_tag_there_is_none(directory: Path) -> None:
    queries = _tags(Run(directory / "t"), "m_tag_plain")
    assert len(queries) == 1
    assert queries["tags"].isna().all()


def test_one_request_over_two_servers(directory: Path) -> None:
    rows = attribute(directory / "t", "--by", "tag:trace")["rows"]
    (row,) = [row for row in rows if row["tag:trace"] == REQUEST[0].hex()]
    assert row["calls"] == 2


def test_no_room_for_a_second_recorder(directory: Path) -> None:
    queries = _tags(Run(directory / "second"))
    assert len(queries) > 2 * QUERIES // CLIENTS * CLIENTS
    assert queries["tags"].isna().all()


def test_a_recorder_that_is_killed_and_the_next_one(
    drivers: None,  # noqa: ARG001
    mariadb: DatabaseServer,
    tmp_path: Path,
) -> None:
    with closing(mariadb.connect()) as connection:
        options = ("--energy", "none", "--pid", str(mariadb.pid))
        with Recorder(tmp_path / "a", *options), tag(m="a"):
            connection.query("select 1 as m_tag_a")
        # It ended by SIGKILL.
        with tag(m="between"):
            deadline = time.monotonic() + TIMEOUT_S
            while channel_module.channel._recorder is not None:
                assert time.monotonic() < deadline, "its end is not noticed"
                connection.query("select 1 as m_tag_between")
        with recording(tmp_path / "b", "--pid", str(mariadb.pid)), tag(m="b"):
            connection.query("select 1 as m_tag_b")
    (tags,) = _tags(Run(tmp_path / "b"))["tags"]
    assert tags == {"m": "b"}
