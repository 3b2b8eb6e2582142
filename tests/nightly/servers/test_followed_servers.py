# SPDX-License-Identifier: Apache-2.0
"""A server that is upgraded in place, or starts from another root, is followed while it is traced.

Every query that it executes once it is followed counts, on both rungs and in the live view.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from qjoule.studies.servers import mysql
from qjoule.studies.servers.process import free_port
from qjoule.studies.servers.redis import installed_redis, redis_in
from servers.process import DatabaseServer
from tracing.live_top import Top
from tracing.recording import Recorder, Run, attribute

pytestmark = [pytest.mark.root, pytest.mark.server]

COMMANDS = 3000
FOLLOWED_S = 30.0


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """An executable of a test's own, which it may replace."""
    copy = tmp_path / "bin" / "redis-server"
    copy.parent.mkdir()
    shutil.copy2(installed_redis(), copy)
    return copy


@pytest.fixture
def ending() -> Iterator[ExitStack]:
    """What began while one server ran, and goes on while the next one does."""
    with ExitStack() as stack:
        yield stack


@contextmanager
def serving(program: Path, directory: Path) -> Iterator[DatabaseServer]:
    directory.mkdir()
    with redis_in(directory, program) as server:
        yield server


def upgrade(program: Path) -> None:
    """In place, as a package manager does it: another file under the same name."""
    new = program.with_suffix(".new")
    shutil.copy2(program, new)
    new.rename(program)


def work(server: DatabaseServer, key: str, commands: int = COMMANDS) -> None:
    with server.connect() as client:
        for number in range(commands):
            client.set(f"{key}:{number}", number)


def until_followed(trace: Path, name: str) -> None:
    """Waits until meta.json tells it: the recorder writes it when it is true."""
    deadline = time.monotonic() + FOLLOWED_S
    while '"followed"' not in (trace / "meta.json").read_text():
        assert time.monotonic() < deadline, f"{name} was not followed"
        time.sleep(0.1)


@contextmanager
def recorded(trace: Path, pid: int, *options: str) -> Iterator[Recorder]:
    recorder = Recorder(trace, "--energy", "none", "--pid", str(pid), *options)
    try:
        recorder.attached()
        yield recorder
        assert recorder.stop() == 0, recorder.words
    finally:
        recorder.end()


def test_an_upgrade_in_place_is_followed(program: Path, tmp_path: Path, ending: ExitStack) -> None:
    """The binary is replaced while the server runs; then it restarts."""
    trace = tmp_path / "trace"
    with serving(program, tmp_path / "a") as first:
        ending.enter_context(recorded(trace, first.pid))
        upgrade(program)
        work(first, "before")
    with serving(program, tmp_path / "b") as second:
        until_followed(trace, "the upgraded server")
        work(second, "after")
        pid = second.pid
        ending.close()
    counts = Run(trace).executions()
    assert (counts["SET before:?"], counts["SET after:?"]) == (COMMANDS, COMMANDS)
    what = {change["what"]: change for change in attribute(trace)["trace"]["changes"]}
    assert set(what) == {"exited", "untraced", "followed"}
    assert what["followed"]["pid"] == pid
    assert what["exited"]["until"] and what["untraced"]["until"] == what["followed"]["since"]
    assert what["followed"]["text"].startswith(f"redis:{first.port} followed as process {pid} (")
    (server,) = Run(trace).trace.meta.servers
    assert server.name == f"redis:{first.port}"


def test_top_follows(program: Path, tmp_path: Path) -> None:
    with serving(program, tmp_path / "a") as first:
        top = Top("--energy", "none", "--pid", str(first.pid))
        top.wait_for(1)
        name = f"redis:{first.port}"
    try:
        upgrade(program)
        with serving(program, tmp_path / "b") as second:

            def told(what: str) -> bool:
                changes = top.snapshots[-1]["interval"]["trace"].get("changes", ())
                return any(change["what"] == what for change in changes)

            deadline = time.monotonic() + FOLLOWED_S
            while not told("followed"):
                assert time.monotonic() < deadline
                top.wait_for(1)
            work(second, "after")
            snapshots = top.finish(lambda row: row["shape"] == "SET after:?")
    finally:
        top.close()
    rows = [row for one in snapshots for row in one["interval"]["rows"]]
    mine = [row for row in rows if row["shape"] == "SET after:?"]
    assert {row["server"] for row in mine} == {name}
    assert 0 < sum(row["calls"] for row in mine) <= COMMANDS


# ---- other roots ---------------------------------------------------------------------------------


def _libraries(program: Path) -> list[Path]:
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    words = (word for line in listed.splitlines() for word in line.split())
    return [Path(word) for word in words if word.startswith("/")]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root directory with a Redis and libraries of its own: other files than the host's."""
    top = tmp_path / "root"
    for path in (installed_redis(), *_libraries(installed_redis())):
        copy = top / str(path).lstrip("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path.resolve(), copy)
    (top / "tmp").mkdir()
    return top


@contextmanager
def in_root(top: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    program = installed_redis()
    command = ["chroot", str(top), str(program), "--port", str(port), "--dir", "/tmp", "--save", ""]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def connected(port: int) -> Any:
    import redis  # noqa: PLC0415 - the tests' own client

    deadline = time.monotonic() + 20
    while True:
        try:
            client = redis.Redis(port=port, protocol=2, single_connection_client=True)
            client.ping()
            return client
        except redis.ConnectionError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_server_in_another_root_with_other_libraries(
    root: Path, tmp_path: Path, ending: ExitStack
) -> None:
    """It is examined below its own root, at the start and when it is followed."""
    trace, port = tmp_path / "trace", free_port()
    with in_root(root, port) as first:
        client = connected(port)
        ending.enter_context(recorded(trace, first.pid))
        for number in range(COMMANDS):
            client.set(f"before:{number}", number)
        client.close()
    upgrade(root / str(installed_redis()).lstrip("/"))
    with in_root(root, port):
        until_followed(trace, "the server in its root")
        client = connected(port)
        for number in range(COMMANDS):
            client.set(f"after:{number}", number)
        client.close()
        ending.close()
    counts = Run(trace).executions()
    assert (counts["SET before:?"], counts["SET after:?"]) == (COMMANDS, COMMANDS)


# ---- the symbol rung -----------------------------------------------------------------------------


@pytest.fixture
def mariadbd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An executable of a test's own, which MariaDBs are started from."""
    find = mysql._executable
    copy = tmp_path / "mariadbd"
    shutil.copy2(find("mariadbd", None), copy)
    monkeypatch.setattr(
        mysql,
        "_executable",
        lambda name, programs: str(copy) if name == "mariadbd" else find(name, programs),
    )
    return copy


def test_probes_move_to_the_new_executable(
    mariadbd: Path, tmp_path: Path, ending: ExitStack
) -> None:
    """On the symbol rung: the old probes are of the old file, and new ones are attached."""
    trace = tmp_path / "trace"
    with mysql.mariadb_server() as first:
        ending.enter_context(recorded(trace, first.pid, "--rung", "symbol"))
        _select(first, "old")
    upgrade(mariadbd)
    with mysql.mariadb_server() as second:
        until_followed(trace, "the upgraded MariaDB")
        _select(second, "new")
        ending.close()
    run = Run(trace)
    counts = run.executions()
    assert (counts["select ? as old"], counts["select ? as new"]) == (500, 500), counts
    assert set(run.having("as new")["rung"]) == {"symbol"}


def _select(server: DatabaseServer, name: str) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        for number in range(500):
            cursor.execute(f"SELECT {number} AS `{name}`")


# ---- restarts ------------------------------------------------------------------------------------


def test_a_chosen_server_that_restarts_unchanged(
    program: Path, tmp_path: Path, ending: ExitStack
) -> None:
    """`--pid` names a process; its server goes on in another one."""
    trace = tmp_path / "trace"
    with serving(program, tmp_path / "a") as server:
        ending.enter_context(recorded(trace, server.pid))
        work(server, "first")
        server.stop()
        server.start()
        until_followed(trace, "the restarted server")
        work(server, "second")
        ending.close()
    run = Run(trace)
    counts = run.executions()
    assert (counts["SET first:?"], counts["SET second:?"]) == (COMMANDS, COMMANDS)
    assert run.queries["server"].nunique() == 1
    changes = attribute(trace)["trace"]["changes"]
    (untraced,) = (one for one in changes if one["what"] == "untraced")
    assert untraced["cpu_ns"] > 0, "what it did until then"


def test_several_restarts_in_quick_succession(
    program: Path, tmp_path: Path, ending: ExitStack
) -> None:
    """Upgraded each time, as by a manager that tries version after version."""
    trace = tmp_path / "trace"
    with serving(program, tmp_path / "a") as server:
        ending.enter_context(recorded(trace, server.pid))
        for _ in range(4):
            upgrade(program)
            server.stop()
            server.start()
        pid, deadline = server.pid, time.monotonic() + 3 * FOLLOWED_S
        while f'"pid": {pid}' not in _followed(trace):
            assert time.monotonic() < deadline, "the last one was not followed"
            time.sleep(0.1)
        work(server, "last")
        ending.close()
    assert Run(trace).executions()["SET last:?"] == COMMANDS
    exited = [one for one in attribute(trace)["trace"]["changes"] if one["what"] == "exited"]
    assert exited


def _followed(trace: Path) -> str:
    """The changes of meta.json that say that a server is followed."""
    changes = json.loads((trace / "meta.json").read_text()).get("changes", [])
    return json.dumps([one for one in changes if one["what"] == "followed"])


def test_another_server_of_the_chosen_ones_executable(program: Path, tmp_path: Path) -> None:
    """It began later, and is no restart: the chosen server still runs."""
    trace = tmp_path / "trace"
    with serving(program, tmp_path / "a") as chosen, recorded(trace, chosen.pid):
        work(chosen, "mine")
        with serving(program, tmp_path / "b") as other:
            work(other, "others")
    run = Run(trace)
    counts = run.executions()
    assert counts["SET mine:?"] == COMMANDS
    assert counts["SET others:?"] == 0
