# SPDX-License-Identifier: Apache-2.0
"""Redis and Valkey of Debian's newer suites: `make test-versions`. Half of the sessions are open
before tracing begins. `INFO commandstats` is the referee.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

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

pytestmark = [
    *(pytest.mark.root, pytest.mark.server, pytest.mark.versions),
    pytest.mark.parametrize("release", releases("redis", "valkey")),
]

COMMANDS, CLIENTS = 4000, 8


@pytest.mark.parametrize("options", [(), ("--io-threads", "3")], ids=["plain", "io-threads"])
def test_every_command_counts(release: Release, options: tuple[str, ...], tmp_path: Path) -> None:
    """In plain text one thread is exact. Of threads that read, requests are counted."""
    with running(release, *options) as server:
        plan = planned(server)
        assert is_documented(release), release.version
        assert (plan.server.flavour, plan.server.version) == (release.server, release.version)
        assert open_executable(Path(f"/proc/{server.pid}/exe")).tables == (".dynsym",)
        assert plan.choice.rung is (Rung.STATISTICAL if options else Rung.SOCKET), plan.choice.why
        assert plan.choice.exact is not bool(options)
        clients = [server.connect(tcp=True) for _ in range(CLIENTS)]
        before = command_stats(clients[0])
        with recording(tmp_path / "t", "--pid", str(server.pid), "--ring-mb", "64"):
            for number in range(COMMANDS):
                clients[number % CLIENTS].set(f"early:{number}", 1)
            at_once = day.ask_at_once(server)
            named = ("user:__rand_int__:name", "x")
            day.benchmark(server, "-n", str(COMMANDS), "-r", "1000", "set", *named)
            day.benchmark(server, "-n", str(COMMANDS), "-P", "16", "incr", "hits:42")
            after = command_stats(clients[0])
        for client in clients:
            client.close()
    run, none = Run(tmp_path / "t"), {"calls": 0}
    assert {**run.loss, "task_rate": 0} == {"task_rate": 0}  # of other tests on this machine
    counted = run.executions()
    calls = Counter(
        {name: int(row["calls"] - before.get(name, none)["calls"]) for name, row in after.items()}
    )
    for mine in ("INFO", "CLIENT SETINFO", "PING"):
        del counted[mine]
        del calls[mine.lower().replace(" ", "|")]
    assert counted.total() == calls.total()
    expected = {"SET early:?": COMMANDS, "SET user:?:name": COMMANDS, "INCR hits:?": COMMANDS}
    expected["GET x:?"] = at_once
    assert {text: counted[text] for text in expected} == expected


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
    assert (run.executions()["SET plain:?"], run.executions()["SET hidden:?"]) == (1, 0)


def test_a_restart_is_followed_also_with_io_threads(release: Release, tmp_path: Path) -> None:
    """The plan was made for one thread. The kernel side sees that io-threads read."""
    name = release.name.replace("-", "_")
    with running(release) as server, recording(tmp_path / "t", "--ring-mb", "64"):
        for turn in ("first", "second"):
            with server.connect() as client:
                client.get(f"{name}:{turn}:1")
            server.stop()
            if turn == "second":
                server.argv += ["--io-threads", "3"]
            server.start()
        key = f"{name}:again:__rand_int__"
        day.benchmark(server, "-n", str(COMMANDS), "-r", "1000", "set", key, "x")
        at_once = day.ask_at_once(server)
    run = Run(tmp_path / "t")
    counted = run.executions()
    assert [counted[f"GET {name}:{turn}:?"] for turn in ("first", "second")] == [1, 1]
    mine = run.having(f"{name}:again")
    assert mine["executions"].sum() == COMMANDS
    assert counted["GET x:?"] >= at_once  # of all servers on this machine
    assert run.loss.get("framing", 0) == 0
    if release.server == "redis":  # Valkey's start to read only under load
        assert "statistical" in set(mine["rung"])
