# SPDX-License-Identifier: Apache-2.0
"""Other processes that run a Redis's executable, and how a Redis is configured."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import redis as driver

from qjoule.contract import Rung
from qjoule.machine.kernel_facts import read_kernel_facts
from qjoule.servers.discovery import find_servers
from qjoule.servers.plan import PlannedServer, build_plan
from servers.certificates import self_signed
from servers.process import DatabaseServer, free_port
from servers.redis import redis_server
from tracing.recording import Run, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]


@contextmanager
def sentinel(server: DatabaseServer, directory: Path, name: str, *options: str) -> Iterator[Any]:
    """A Sentinel that runs the server's executable under this name; yields a client of it."""
    directory.mkdir()
    (directory / name).symlink_to(server.executable)
    port = free_port()
    configuration = directory / "sentinel.conf"
    configuration.write_text(f"port {port}\nbind 127.0.0.1\ndir {directory}\n")
    words = [str(directory / name), str(configuration), *options]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    try:
        with driver.Redis(port=port, protocol=2, single_connection_client=True) as client:
            _wait_for(client)
            client.pid = process.pid
            yield client
    finally:
        process.kill()
        process.wait()


def _wait_for(client: Any) -> None:
    deadline = time.monotonic() + 60
    while True:
        with suppress(driver.ConnectionError):
            client.ping()
            return
        assert time.monotonic() < deadline, "Sentinel does not answer"
        time.sleep(0.02)


def test_redis_a_sentinel_is_no_redis(redis: DatabaseServer, tmp_path: Path) -> None:
    """Whenever it starts, and whether its name or an option makes it a Sentinel."""
    with (
        sentinel(redis, tmp_path / "by-option", "redis-server", "--sentinel") as before,
        recording(tmp_path / "t"),
        sentinel(redis, tmp_path / "by-name", "redis-sentinel") as named,
        sentinel(
            redis, tmp_path / "later", "redis-server", "--loglevel", "warning", "--sentinel"
        ) as later,
    ):
        for client in (before, named, later):
            assert client.info("sentinel")["sentinel_masters"] == 0
            for _ in range(100):
                client.execute_command("SENTINEL", "MYID")
        with redis.connect() as client:
            for _ in range(10):
                client.get("beside:1")
        strangers = {one.pid for one in (before, named, later)}
    run = Run(tmp_path / "t")
    owners = run.trace.pandas("owners")
    of_servers = set(owners[owners["kind"] == "server"]["tgid"])
    assert not of_servers & strangers
    assert redis.pid in of_servers
    assert strangers <= set(owners[owners["kind"] == "process"]["tgid"])
    counted = run.executions()
    assert counted["GET beside:?"] == 10
    assert not [text for text in counted if "SENTINEL" in text]


def test_redis_with_sentinels_words_is_a_redis(tmp_path: Path) -> None:
    """The name of a file, or a value, is not an option."""
    configuration = tmp_path / "redis-sentinel"
    configuration.write_text("")
    odd = ("--pidfile", str(tmp_path / "--sentinel"))
    with redis_server() as server:
        server.argv = [server.argv[0], str(configuration), *server.argv[1:], *odd]
        with recording(tmp_path / "t"):
            server.stop()
            server.start()
            with server.connect(tcp=True) as client:
                client.get("again:1")
    assert Run(tmp_path / "t").executions()["GET again:?"] == 1


def planned(server: DatabaseServer) -> PlannedServer:
    found = [one for one in find_servers() if server.pid in one.tgids]
    (only,) = build_plan(found, read_kernel_facts()).servers
    return only


def test_a_plain_redis_is_exact(redis: DatabaseServer) -> None:
    choice = planned(redis).choice
    assert (choice.rung, choice.exact) == (Rung.SOCKET, True), choice.why


def test_a_redis_with_tls_is_not(tmp_path: Path) -> None:
    """Also if TLS is configured later. A server on a unix socket alone has none."""
    key, certificate = self_signed(tmp_path)
    pems = {"tls-cert-file": str(certificate), "tls-key-file": str(key)}
    pems["tls-ca-cert-file"] = str(certificate)
    with redis_server(*(word for k, v in pems.items() for word in (f"--{k}", v))) as server:
        assert planned(server).choice.exact
        with server.connect() as client:
            client.config_set("tls-port", free_port())
        choice = planned(server).choice
        assert not choice.exact
        assert "with TLS" in choice.why
        with server.connect() as client:
            client.config_set("tls-port", 0)
            client.config_set("port", 0)
        assert planned(server).choice.exact
