# SPDX-License-Identifier: Apache-2.0
"""Redis and Valkey of Debian's newer suites: `make test-versions`. Half of the sessions are open
before tracing begins. `INFO commandstats` is the referee.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from qjoule.contract import AttachMode
from qjoule.servers.elf import open_executable
from servers.databases import command_stats
from servers.newer import Release
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
        assert plan.choice.attach_mode is (
            AttachMode.STATISTICAL if options else AttachMode.SOCKET
        ), plan.choice.why
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
