"""Tags of clients on other hosts, which reach the recorder through the server they speak to."""

from __future__ import annotations

import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from qjoule_drivers import channel as channel_module
from qjoule_drivers import instrument, tag, uninstrument
from qjoule_drivers.comments import put_in_statements
from qjoule_drivers.connections import put_in_connections
from root.support import mysql_client as wire
from root.support.mysql_client import mysql_client
from root.support.recording import Run, attribute, both_rungs, recording
from servers.process import DatabaseServer

pytestmark = [pytest.mark.root, pytest.mark.server]

CLIENTS = 4
ENDPOINTS = 5
CALLS = 200  #: of each client
RUNGS = ("socket", "symbol")


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process' shims meet no recorder, as on another host, and send their tags."""
    # The recorder, which loses root's rights, listens elsewhere.
    monkeypatch.setenv("QJOULE_TAGS_SOCKET", f"/tmp/qjoule-elsewhere-{tmp_path.name}.sock")
    channel = channel_module.channel
    monkeypatch.setattr(channel, "_path", str(tmp_path / "nobody.sock"))
    channel.abandon()
    instrument(in_statements=["endpoint", "tenant"], in_connections=["release"])
    yield
    uninstrument()
    put_in_statements(())
    put_in_connections(())
    channel.close()


def _tagged(run: Run) -> Counter[tuple[str, str | None]]:
    """(endpoint, release) and how many executions have them; queries of the test alone."""
    counts: Counter[tuple[str, str | None]] = Counter()
    for tags, n in zip(
        run.having("m_said")["tags"], run.having("m_said")["executions"], strict=True
    ):
        of = dict(tags) if isinstance(tags, list) else {}
        counts[of.get("endpoint", "?"), of.get("release")] += int(n)
    return counts


def _clients(connect: Callable[[], Any], work: Callable[[Any, int], None]) -> None:
    """CLIENTS threads, of which each calls all endpoints in turn."""
    failed: list[BaseException] = []

    def client(number: int) -> None:
        try:
            with tag(release=f"1.{number}"), closing(connect()) as connection:
                for turn in range(CALLS):
                    with tag(endpoint=f"/shop it's {(number + turn) % ENDPOINTS}"):
                        work(connection, turn)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed[0]


def _expected(*, released: bool) -> Counter[tuple[str, str | None]]:
    return Counter(
        (f"/shop it's {(number + turn) % ENDPOINTS}", f"1.{number}" if released else None)
        for number in range(CLIENTS)
        for turn in range(CALLS)
    )


def _check(directory: Path, *, released: bool) -> None:
    run = Run(directory)
    assert run.loss == {}
    assert _tagged(run) == _expected(released=released)
    rows = attribute(directory, "--by", "tag:endpoint")["rows"]
    calls = {row["tag:endpoint"]: row["calls"] for row in rows if row.get("tag:endpoint")}
    for number in range(ENDPOINTS):
        assert calls[f"/shop it's {number}"] >= CLIENTS * CALLS // ENDPOINTS


def _execute(connection: Any, turn: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"select {turn} as m_said")
        cursor.fetchall()


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("name", ["mariadb", "mysql80", "mysql8033"])
def test_mysql_and_mariadb(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Comments; query attributes where the server has them. Connections have attributes."""
    server: DatabaseServer = request.getfixturevalue(name)
    options = {"ssl_disabled": True} if name.startswith("mysql") else {}
    with both_rungs(tmp_path, server.pid, "--client-tags"):
        _clients(lambda: server.connect(tcp=True, **options), _execute)
    for rung in RUNGS:
        _check(tmp_path / rung, released=rung == "socket")


@pytest.mark.usefixtures("elsewhere")
def test_postgres(postgres: DatabaseServer, tmp_path: Path) -> None:
    """Comments, also of what the driver prepares; connections are called after their tags."""

    def work(connection: Any, turn: int) -> None:
        connection.execute("select %s::int as m_said", (turn,)).fetchall()

    with both_rungs(tmp_path, postgres.pid, "--client-tags"):
        _clients(lambda: postgres.connect(tcp=True), work)
    for rung in RUNGS:
        _check(tmp_path / rung, released=True)


@pytest.mark.usefixtures("elsewhere")
def test_nothing_is_read_unasked(
    mariadb: DatabaseServer, postgres: DatabaseServer, tmp_path: Path
) -> None:
    pids = "--pid", str(mariadb.pid), "--pid", str(postgres.pid)
    with recording(tmp_path / "t", *pids), tag(endpoint="x", release="1"):
        with closing(mariadb.connect()) as connection:
            _execute(connection, 1)
        with postgres.connect() as connection:
            connection.execute("select 1 as m_said")
    run = Run(tmp_path / "t")
    assert len(run.having("m_said")) == 2
    assert run.queries["tags"].isna().all()


#: A statement's text, and the tags that it has.
STATEMENTS = {
    "/*endpoint='first'*/ select 1 as m_a": {"endpoint": "first"},
    "select 1 as m_b /*endpoint='last'*/ ;\n": {"endpoint": "last"},
    "/*endpoint='first'*/ select 1 as m_c /*endpoint='last'*/": {"endpoint": "last"},
    r"select 1 as m_d /*endpoint='it\'s%20%2A%2F',k='%F0%9F%94%8B'*/": {
        "endpoint": "it's */",
        "k": "🔋",
    },
    "select '/*' as m_e /*endpoint='x'*/": {"endpoint": "x"},
    "select '/*endpoint=' as m_f, '*/'": {},
    "select 1 as m_g /* a remark */": {},
    "select 1 /*endpoint='within'*/ as m_i": {},
    f"select 1 as m_j /*endpoint='{'x' * 500}'*/": {},
    f"select 1 as m_k, '{'x' * 5000}' /*endpoint='beyond'*/": {},
    f"/*endpoint='first'*/ select 1 as m_l, '{'x' * 5000}' /*endpoint='beyond'*/": {
        "endpoint": "first"
    },
    "select 1 as m_m /*endpoint='x',traceparent="
    "'00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',tracestate='a%3Db'*/": {
        "endpoint": "x",
        "trace": "0af7651916cd43dd8448eb211c80319c",
        "span": "b7ad6b7169203331",
    },
}


def _tags_by_mark(run: Run) -> dict[str, dict[str, str]]:
    queries = run.having(" m_")
    marks = queries["text"].str.extract("(m_[a-z])")[0]
    tags = [dict(tags) if isinstance(tags, list) else {} for tags in queries["tags"]]
    return dict(zip(marks, tags, strict=True))


def _mark(text: str) -> str:
    return text[text.index("m_") :][:3]


@pytest.mark.parametrize("name", ["mariadb", "postgres"])
def test_what_is_read_of_a_statement(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server: DatabaseServer = request.getfixturevalue(name)
    with (
        both_rungs(tmp_path, server.pid, "--client-tags"),
        closing(server.connect()) as connection,
        connection.cursor() as cursor,
    ):
        for text in STATEMENTS:
            cursor.execute(text)
            cursor.fetchall()
    expected = {_mark(text): tags for text, tags in STATEMENTS.items()}
    for rung in RUNGS:
        assert _tags_by_mark(Run(tmp_path / rung)) == expected, rung


def test_a_pipeline_of_different_tags_has_none(postgres: DatabaseServer, tmp_path: Path) -> None:
    with (
        recording(tmp_path / "t", "--pid", str(postgres.pid), "--rung", "socket", "--client-tags"),
        postgres.connect() as connection,
    ):
        for pair in (("a", "b"), ("c", "c")):
            with connection.pipeline():
                for endpoint in pair:
                    connection.execute(f"select 1 as m_said /*endpoint='{endpoint}'*/")
    tags = [of for of in Run(tmp_path / "t").having("m_said")["tags"] if isinstance(of, list)]
    assert tags in ([[("endpoint", "c")]], [[("endpoint", "c")]] * 2)


def _counted(data: bytes) -> bytes:
    return bytes([len(data)]) + data


@pytest.mark.usefixtures("elsewhere")
def test_attributes_that_are_no_tags(mysql8033: DatabaseServer, tmp_path: Path) -> None:
    """Others' attributes stay at the server; a comment behind them is read."""
    names = [b"other", b"qjoule.endpoint"]
    with (
        both_rungs(tmp_path, mysql8033.pid, "--client-tags"),
        mysql_client(port=mysql8033.port, flags=wire.QUERY_ATTRIBUTES) as client,
    ):
        for name in names:
            block = b"\1\1\0\1" + struct.pack("<H", 254) + _counted(name) + _counted(b"x")
            client.query(block + b"select 1 as m_said /*endpoint='c'*/")
    for rung in RUNGS:
        assert _tagged(Run(tmp_path / rung)) == {("c", None): 1, ("x", None): 1}, rung
