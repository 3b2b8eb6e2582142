# SPDX-License-Identifier: Apache-2.0
"""A server that is upgraded in place, or starts from another root, is followed while it is traced.

Every query that it executes once it is followed counts, on both attach modes and in the live view.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import redis as redis_client

from qjoule_studies.servers import mysql
from qjoule_studies.servers.process import DatabaseServer, free_port
from qjoule_studies.servers.redis import installed_redis
from tracing.own_servers import (
    own_program,
    recorded,
    serving,
    until_meta_has,
    upgrade,
    work,
)
from tracing.recording import Run, attribute

pytestmark = [pytest.mark.root, pytest.mark.server]

COMMANDS = 3000
FOLLOWED = '"followed"'


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return own_program(tmp_path)


@pytest.fixture
def ending() -> Iterator[ExitStack]:
    """Work that began while one server ran and goes on while the next one runs."""
    with ExitStack() as stack:
        yield stack


def commands(trace: Path, *keys: str) -> list[int]:
    """How many commands a trace has of each key."""
    counts = Run(trace).executions()
    return [counts[f"SET {key}:?"] for key in keys]


def test_an_upgrade_in_place_is_followed(program: Path, tmp_path: Path, ending: ExitStack) -> None:
    """The binary is replaced while the server runs; then it restarts."""
    trace = tmp_path / "trace"
    with serving(program, tmp_path / "a") as first:
        ending.enter_context(recorded(trace, first.pid))
        upgrade(program)
        work(first, "before", COMMANDS)
    with serving(program, tmp_path / "b") as second:
        until_meta_has(trace, FOLLOWED)
        work(second, "after", COMMANDS)
        pid = second.pid
        ending.close()
    assert commands(trace, "before", "after") == [COMMANDS, COMMANDS]
    changes = {change["what"]: change for change in attribute(trace)["trace"]["changes"]}
    exited, untraced, followed = (changes.pop(w) for w in ("exited", "untraced", "followed"))
    assert not changes
    assert followed["pid"] == pid
    assert exited["until"] and untraced["until"] == followed["since"]
    assert followed["text"].startswith(f"redis:{first.port} followed as process {pid} (")
    (server,) = Run(trace).trace.meta.servers
    assert server.name == f"redis:{first.port}"


# ---- other roots ---------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root directory with a Redis and libraries of its own: other files than the host's."""
    top, program = tmp_path / "root", installed_redis()
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    libraries = (Path(word) for word in listed.split() if word.startswith("/"))
    for path in (program, *libraries):
        copy = top / str(path).lstrip("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path.resolve(), copy)
    (top / "tmp").mkdir()
    return top


@contextmanager
def in_root(top: Path, port: int) -> Iterator[tuple[int, redis_client.Redis]]:
    """A Redis below this root: its pid, and a client."""
    options = ("--port", str(port), "--dir", "/tmp", "--save", "")
    command = ["chroot", str(top), str(installed_redis()), *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 20
    try:
        while True:
            try:
                client = redis_client.Redis(port=port, protocol=2, single_connection_client=True)
                client.ping()
                break
            except redis_client.ConnectionError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        with client:
            yield process.pid, client
    finally:
        process.terminate()
        process.wait()


def test_a_server_in_another_root_with_other_libraries(
    root: Path, tmp_path: Path, ending: ExitStack
) -> None:
    """The server is examined below its own root, at the start and when it is followed."""
    trace, port = tmp_path / "trace", free_port()
    with in_root(root, port) as (pid, client):
        ending.enter_context(recorded(trace, pid))
        for number in range(COMMANDS):
            client.set(f"before:{number}", number)
    upgrade(root / str(installed_redis()).lstrip("/"))
    with in_root(root, port) as (_, client):
        until_meta_has(trace, FOLLOWED)
        for number in range(COMMANDS):
            client.set(f"after:{number}", number)
        ending.close()
    assert commands(trace, "before", "after") == [COMMANDS, COMMANDS]


# ---- the symbol mode -----------------------------------------------------------------------------


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


def select(server: DatabaseServer, name: str) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        for number in range(500):
            cursor.execute(f"SELECT {number} AS `{name}`")


def test_probes_move_to_the_new_executable(
    mariadbd: Path, tmp_path: Path, ending: ExitStack
) -> None:
    """On the symbol mode: the old probes are of the old file, and new ones are attached."""
    trace, options = tmp_path / "trace", ("--attach", "symbol", "--energy", "none")
    with mysql.mariadb_server() as first:
        ending.enter_context(recorded(trace, first.pid, options=options))
        select(first, "old")
    upgrade(mariadbd)
    with mysql.mariadb_server() as second:
        until_meta_has(trace, FOLLOWED)
        select(second, "new")
        ending.close()
    run = Run(trace)
    counts = run.executions()
    assert (counts["select ? as old"], counts["select ? as new"]) == (500, 500), counts
    assert set(run.having("as new")["attach_mode"]) == {"symbol"}


# ---- restarts ------------------------------------------------------------------------------------


def test_a_chosen_server_that_restarts_unchanged(program: Path, tmp_path: Path) -> None:
    """`--pid` names a process; its server goes on in another one."""
    trace = tmp_path / "trace"
    with serving(program, tmp_path / "a") as server, recorded(trace, server.pid):
        work(server, "first", COMMANDS)
        server.stop()
        server.start()
        until_meta_has(trace, FOLLOWED)
        work(server, "second", COMMANDS)
    assert commands(trace, "first", "second") == [COMMANDS, COMMANDS]
    assert Run(trace).queries["server"].nunique() == 1
    changes = attribute(trace)["trace"]["changes"]
    (untraced,) = (change for change in changes if change["what"] == "untraced")
    assert untraced["cpu_ns"] > 0, "what it did until it was followed"


def test_another_server_of_the_same_executable_is_not_counted(
    program: Path, tmp_path: Path
) -> None:
    """The other one began later, and is no restart: the chosen server still runs."""
    trace = tmp_path / "trace"
    with serving(program, tmp_path / "a") as traced, recorded(trace, traced.pid):
        work(traced, "mine", COMMANDS)
        with serving(program, tmp_path / "b") as other:
            work(other, "others", COMMANDS)
    assert commands(trace, "mine", "others") == [COMMANDS, 0]
