# SPDX-License-Identifier: Apache-2.0
"""A user of the host who reports others' connections to a recorder, or attacks its tag socket.
Also: processes that try to steal a socket to the root part.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from nightly.hostile.bound import USER
from other_user import NOBODY, other_user
from qjoule.reporters.missing import lost
from qjoule_drivers import channel as channel_module
from qjoule_drivers import tag
from qjoule_drivers.channel import Channel, Peer
from qjoule_studies.servers.process import DatabaseServer
from tracing.recording import QJOULE, Run, recording

pytestmark = [pytest.mark.beside, pytest.mark.root]

QUERIES = 50
WAIT_S = 60.0
CONNECTIONS = 1100  #: more than a recorder has descriptors


def connect(server: DatabaseServer, tcp: bool) -> socket.socket:
    if tcp:
        return socket.create_connection(("127.0.0.1", server.port))
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(server.socket))
    return client


def described(client: socket.socket, path: Path) -> dict[str, Any]:
    """A connection as a shim describes it."""
    if client.family == socket.AF_UNIX:
        return {
            **{"db.system.name": "redis", "network.transport": "unix"},
            **{"client.inode": os.fstat(client.fileno()).st_ino, "server.address": str(path)},
        }
    own_address, server_address = client.getsockname(), client.getpeername()
    return {
        **{"db.system.name": "redis", "network.transport": "tcp"},
        **{"network.local.address": own_address[0], "network.local.port": own_address[1]},
        **{"server.address": server_address[0], "server.port": server_address[1]},
    }


def set_key(client: socket.socket, key: str) -> None:
    client.sendall(f"*3\r\n$3\r\nSET\r\n${len(key)}\r\n{key}\r\n$1\r\nx\r\n".encode())
    assert client.recv(100) == b"+OK\r\n"


def tags_of(run: Run, key: str) -> list[dict[str, str] | None]:
    """The tags of each query of these keys; None if it has none."""
    tags = run.having(key)["tags"]
    return [dict(pairs) if isinstance(pairs, list) else None for pairs in tags]


@pytest.mark.server
@pytest.mark.parametrize("tcp", [True, False], ids=["tcp", "unix"])
def test_nobody_can_tag_the_queries_of_another_user(
    redis: DatabaseServer, recorder_socket: Path, tmp_path: Path, tcp: bool
) -> None:
    def forge() -> tuple[None, object]:
        channel, peer = Channel(str(recorder_socket)), Peer(connection)
        with tag(m="forged"):
            channel.begin(peer)
        return None, (channel, peer)

    with (
        recording(tmp_path / "t", "--pid", str(redis.pid)),
        closing(connect(redis, tcp)) as client,
    ):
        connection = described(client, redis.socket)
        with other_user(NOBODY, forge):
            for turn in range(QUERIES):
                set_key(client, f"m_root_{turn}")
    run = Run(tmp_path / "t")
    assert tags_of(run, "m_root_") == [None] * QUERIES
    assert run.loss["unverified"] >= 1
    assert "calls on connections that may be another user's" in lost(run.loss)


def silent_connections(path: Path) -> object:
    """Connections that send nothing, opened as fast as the recorder accepts them."""
    clients: list[socket.socket] = []
    for _ in range(CONNECTIONS):
        client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        clients.append(client)
        for _ in range(1000):
            with suppress(BlockingIOError):
                client.connect(str(path))
                break
            time.sleep(0.001)
    return clients


def meet_recorder() -> None:
    """Connects to the recorder; tries again, since it may be too busy for a moment."""
    channel, deadline = channel_module.channel, time.monotonic() + WAIT_S
    while channel._recorder is None:
        assert time.monotonic() < deadline, "the recorder meets nobody"
        channel.to.until_ns = 0
        channel.begin(None)
        time.sleep(0.01)


@pytest.mark.server
def test_an_attack_on_the_socket_leaves_others_their_tags(
    redis: DatabaseServer, tags_socket: Path, tmp_path: Path
) -> None:
    with (
        recording(tmp_path / "t", "--pid", str(redis.pid)),
        other_user(NOBODY, lambda: (None, silent_connections(tags_socket))),
        closing(redis.connect(tcp=True)) as client,
    ):
        meet_recorder()
        for turn in range(QUERIES):
            with tag(m="honest"):
                client.set(f"m_tag_{turn}", "x")
    assert tags_of(Run(tmp_path / "t"), "m_tag_") == [{"m": "honest"}] * QUERIES


# --------------------------------------------------------------------------------------------------
#
# Processes of our own user that try to take a socket to the root part (pidfd_getfd(2)).

THIEVES, RUNS, _MOST_S = 4, 6, 240


@pytest.fixture(scope="module")
def thief() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="qjoule-thief-") as directory:
        program = Path(directory) / "thief"
        source = Path(__file__).with_name("thief.c")
        subprocess.run(["gcc", "-O2", "-Wall", "-Werror", "-o", program, source], check=True)
        for path in (program.parent, program):
            path.chmod(0o755)
        yield program


@contextmanager
def robbed(thief: Path) -> Iterator[tuple[set[int], list[subprocess.Popen[str]]]]:
    """Thieves during the block. Yields the processes of root whose sockets they took, complete once
    the block has ended, and the thieves.
    """
    stolen_from: set[int] = set()
    with ExitStack() as stack:
        thieves = []
        for _ in range(THIEVES):
            command = [str(thief), str(USER), str(_MOST_S)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            stack.callback(process.wait)
            stack.callback(process.kill)
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
            thieves.append(process)
        yield stolen_from, thieves
        for process in thieves:
            process.kill()
            stolen_from |= {int(line) for line in process.communicate()[0].split()}


def test_thieves_take_what_an_ordinary_program_holds(thief: Path) -> None:
    own_end, program_end = socket.socketpair()
    # Thieves look at low numbers; the test's own process may have many descriptors.
    code = f"import os, sys; os.dup2({program_end.fileno()}, 3); sys.stdin.read()"
    waits = ["/usr/bin/python3", "-I", "-c", code]
    with own_end, program_end, robbed(thief) as (stolen_from, thieves):
        outputs: list[Any] = [thief_process.stdout for thief_process in thieves]
        for _ in range(_MOST_S // 8):  # thieves look at the newest processes
            holder = subprocess.Popen(
                waits,
                stdin=subprocess.PIPE,
                pass_fds=[program_end.fileno()],
                user=USER,
                group=USER,
                extra_groups=[],
            )
            stolen, _, _ = select.select(outputs, [], [], 2.0)
            holder.communicate()
            if stolen:
                break
    assert os.getpid() in stolen_from


def test_nobody_takes_a_socket_to_the_root_part(thief: Path) -> None:
    """From the command, the reattach helper or the tracer, when they start and while they run."""
    of_user = {**os.environ, "QJOULE_UID": str(USER), "QJOULE_GID": str(USER)}
    own = os.getpid()
    root_parts = set()
    with (
        tempfile.TemporaryDirectory(prefix="qjoule-thief-") as directory,
        robbed(thief) as (stolen_from, _),
    ):
        os.chown(directory, USER, USER)
        for number in range(RUNS):
            arguments = f"record -d 0.3 --pid {own} -o {directory}/{number}.qjoule"
            recorder = subprocess.Popen([QJOULE, *arguments.split()], env=of_user)
            root_parts.add(recorder.pid)
            assert recorder.wait() == 0
    assert not stolen_from & root_parts
