# SPDX-License-Identifier: Apache-2.0
"""Gunicorn's preforked workers, with and without gevent: queries carry their request's tags."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from qjoule_studies.servers.process import DatabaseServer
from tracing.recording import QJOULE, Run, recording
from waiting import until

pytestmark = [pytest.mark.root, pytest.mark.server]
BIN = Path(sys.executable).parent
REQUESTS = 24
CLIENTS = 6
WORKERS = 2
TIMEOUT_S = 120

#: One connection per process, lent to one request at a time: a minimal connection pool. The
#: framework's part is `work`. Nothing here uses qjoule except the tag.
WORK = """
    import os
    import time
    from queue import Queue
    import pymysql
    from qjoule_drivers import tag

    pools = {{}}

    def work(name):
        if os.getpid() not in pools:
            pools[os.getpid()] = pool = Queue()
            for _ in range(2):
                pool.put(pymysql.connect(unix_socket={socket!r}, user="root"))
        pool = pools[os.getpid()]
        with tag(m=name):
            connection = pool.get()
            for turn in range(3):
                connection.query(f"select sleep(0.001), {{turn}} as m_tag_{{name}}")
            pool.put(connection)
        return os.getpid()
    """
APP = """
    def app(environ, start_response):
        pid = work(environ["PATH_INFO"].strip("/"))
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [str(pid).encode()]
    """


@contextmanager
def gunicorn(kind: str, folder: Path) -> Iterator[Path]:
    """`qjoule run -- gunicorn`, listening at the socket it yields."""
    place = folder / "g.sock"
    argv = [QJOULE, "run", "--", str(BIN / "gunicorn"), "--preload", "-k", kind]
    argv += ["-w", str(WORKERS), "-b", f"unix:{place}", "--worker-tmp-dir", str(folder)]
    log = folder / "log"
    with log.open("w") as output:
        home = {**os.environ, "HOME": str(folder)}  # gunicorn keeps a directory there
        server = subprocess.Popen(
            [*argv, "app:app"], cwd=folder, stdout=output, stderr=output, env=home
        )
    try:
        until(lambda: server.poll() or log.read_text().count("Booting worker") >= WORKERS)
        assert server.poll() is None, log.read_text()
        yield place
        server.send_signal(signal.SIGTERM)
        server.wait(TIMEOUT_S)
    finally:
        server.kill()
        server.wait()
    assert "pymysql" in log.read_text()
    assert "Error" not in log.read_text(), log.read_text()


def _get(place: Path, name: str) -> int:
    """Sends a request; returns the process that answered it."""
    with closing(http.client.HTTPConnection("localhost", timeout=TIMEOUT_S)) as client:
        client.sock = socket.socket(socket.AF_UNIX)
        client.sock.settimeout(TIMEOUT_S)
        client.sock.connect(str(place))
        client.request("GET", f"/{name}")
        answer = client.getresponse()
        assert answer.status == 200
        return int(answer.read())


def _check(run: Run, names: set[str]) -> None:
    queries = run.having("m_tag_")
    marks = queries["text"].str.extract("m_tag_([a-z0-9]+)")[0]
    tags = [dict(pairs).get("m") if isinstance(pairs, list) else None for pairs in queries["tags"]]
    assert tags == list(marks)
    assert len(queries) + run.loss.get("query", 0) == 3 * len(names)
    assert set(marks) == names


@pytest.mark.usefixtures("recorder_socket")
def test_requests_of_preforking_servers(
    mariadb: DatabaseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    work = textwrap.dedent(WORK).format(socket=str(mariadb.socket))
    (tmp_path / "app.py").write_text(work + textwrap.dedent(APP))
    names: set[str] = set()
    with recording(tmp_path / "t", "--pid", str(mariadb.pid)), ThreadPoolExecutor(CLIENTS) as ask:
        for kind in ("sync", "gevent"):
            endpoints = [f"{kind}{n}" for n in range(REQUESTS)]
            with gunicorn(kind, tmp_path) as place:
                pids = list(ask.map(lambda name, at=place: _get(at, name), endpoints))
            assert 1 <= len(set(pids)) <= WORKERS
            names |= set(endpoints)
    _check(Run(tmp_path / "t"), names)
