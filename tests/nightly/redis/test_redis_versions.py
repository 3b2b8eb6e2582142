# SPDX-License-Identifier: Apache-2.0
"""Redis and Valkey of Debian's newer suites: `make test-versions`. Half of the sessions are open
before tracing begins. `INFO commandstats` is the referee.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis as client_library

from qjoule.contract import Rung
from qjoule.servers.elf import open_executable
from servers.certificates import self_signed
from servers.newer import Release
from servers.process import free_port
from servers.redis import command_stats
from tracing import redis_story as day
from tracing.recording import Run, recording
from tracing.releases import is_documented, planned, releases, running

pytestmark = [pytest.mark.root, pytest.mark.server, pytest.mark.versions]

COMMANDS, CLIENTS = 4000, 8
RELEASES = releases("redis", "valkey")


@dataclass
class Told:
    release: Release
    plan: Any
    calls: Counter[str]
    open_before: int
    at_once: int
    run: Run
    tables: tuple[str, ...]


@pytest.fixture(scope="module", params=[(), ("--io-threads", "3")], ids=["plain", "io-threads"])
def options(request: pytest.FixtureRequest) -> tuple[str, ...]:
    found: tuple[str, ...] = request.param
    return found


@pytest.fixture(scope="module", params=RELEASES)
def told(
    request: pytest.FixtureRequest,
    options: tuple[str, ...],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Told]:
    trace = tmp_path_factory.mktemp("versions") / "t"
    with ExitStack() as stack:
        server = stack.enter_context(running(request.param, *options))
        plan = planned(server)
        clients = [stack.enter_context(server.connect(tcp=True)) for _ in range(CLIENTS)]
        before = command_stats(clients[0])
        with recording(trace, "--pid", str(server.pid), "--ring-mb", "64"):
            for number in range(COMMANDS):
                clients[number % CLIENTS].set(f"early:{number}", 1)
            at_once = day.ask_at_once(server)
            named = ("user:__rand_int__:name", "x")
            day.benchmark(server, "-n", str(COMMANDS), "-r", "1000", "set", *named)
            day.benchmark(server, "-n", str(COMMANDS), "-P", "16", "incr", "hits:42")
            after = command_stats(clients[0])
        tables = open_executable(Path(f"/proc/{server.pid}/exe")).tables
    none = {"calls": 0}
    calls = Counter(
        {name: int(row["calls"] - before.get(name, none)["calls"]) for name, row in after.items()}
    )
    yield Told(request.param, plan, +calls, COMMANDS, at_once, Run(trace), tables)


def test_the_version_is_documented_and_stripped(told: Told) -> None:
    assert is_documented(told.release), told.release.version
    assert told.plan.server.flavour == told.release.server
    assert told.plan.server.version == told.release.version
    assert told.tables == (".dynsym",)


def test_its_plan(told: Told, options: tuple[str, ...]) -> None:
    """In plain text one thread is exact. Of threads that read, requests are counted."""
    choice = told.plan.choice
    assert choice.rung is (Rung.STATISTICAL if options else Rung.SOCKET), choice.why
    assert choice.exact is not bool(options)


def test_every_command_counts(told: Told) -> None:
    assert {**told.run.loss, "task_rate": 0} == {"task_rate": 0}  # of other tests on this machine
    counted = told.run.executions()
    calls = told.calls.copy()
    for mine in ("INFO", "CLIENT SETINFO", "PING"):
        del counted[mine]
    for mine in ("info", "client|setinfo", "ping"):
        del calls[mine]
    assert counted.total() == calls.total()
    expected = {
        "SET early:?": told.open_before,
        "GET x:?": told.at_once,
        "SET user:?:name": COMMANDS,
        "INCR hits:?": COMMANDS,
    }
    assert {text: counted[text] for text in expected} == expected


@pytest.mark.parametrize("release", RELEASES)
def test_sessions_with_tls_are_loss(release: Release, tmp_path: Path) -> None:
    with running(release) as server:
        key, certificate = self_signed(server.directory)
        port = free_port()
        pems = {"tls-cert-file": str(certificate), "tls-key-file": str(key)}
        pems |= {"tls-ca-cert-file": str(certificate), "tls-auth-clients": "no"}
        with server.connect() as client:
            for name, value in pems.items():
                client.config_set(name, value)
            client.config_set("tls-port", port)
            assert not planned(server).choice.exact
            with recording(tmp_path / "t", "--pid", str(server.pid)):
                secure = client_library.Redis(port=port, ssl=True, ssl_cert_reqs="none")
                secure.set("hidden:1", 1)
                secure.close()
                client.set("plain:1", 1)
    run = Run(tmp_path / "t")
    assert run.loss["opaque_session"] == 1
    assert run.executions()["SET plain:?"] == 1
    assert run.executions()["SET hidden:?"] == 0


@pytest.mark.parametrize("release", RELEASES)
def test_a_restart_with_io_threads_is_counted(release: Release, tmp_path: Path) -> None:
    """The plan was made for one thread. The kernel side sees that io-threads read."""
    key = f"{release.name.replace('-', '_')}:again:__rand_int__"
    with running(release) as server, recording(tmp_path / "t", "--ring-mb", "64"):
        assert planned(server).choice.rung is Rung.SOCKET
        server.stop()
        server.argv += ["--io-threads", "3"]
        server.start()
        day.benchmark(server, "-n", str(COMMANDS), "-r", "1000", "set", key, "x")
        at_once = day.ask_at_once(server)
    run = Run(tmp_path / "t")
    mine = run.having(key.partition(":")[0])
    assert mine["executions"].sum() == COMMANDS
    assert run.executions()["GET x:?"] >= at_once  # of all servers on this machine
    assert run.loss.get("framing", 0) == 0
    if release.server == "redis":  # Valkey's start to read only under load
        assert "statistical" in set(mine["rung"])


@pytest.mark.parametrize("release", RELEASES)
def test_a_restart_is_followed(release: Release, tmp_path: Path) -> None:
    name = release.name.replace("-", "_")
    with running(release) as server, recording(tmp_path / "t"):
        for turn in ("first", "second"):
            with server.connect() as client:
                client.get(f"{name}:{turn}:1")
            server.stop()
            server.start()
    counted = Run(tmp_path / "t").executions()
    assert [counted[f"GET {name}:{turn}:?"] for turn in ("first", "second")] == [1, 1]
