# SPDX-License-Identifier: Apache-2.0
"""Redis or Valkey is queried for the names of connections that were open before tracing began.
Also: CPU time of a Redis, and one that restarts.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from other_user import SOMEBODY
from qjoule.contract import AttachMode
from qjoule_studies.servers.prerequisites import Account
from qjoule_studies.servers.process import DatabaseServer, free_port, server_directory
from qjoule_studies.servers.redis import installed_redis, redis_in, redis_server
from servers.databases import command_stats, or_skip, self_signed, valkey_server
from tracing.cpu_time import tolerance
from tracing.recording import Run, attribute, credentials, recording
from tracing.redis_client import redis_client, resp
from tracing.releases import planned
from waiting import until

pytestmark = [pytest.mark.root, pytest.mark.server]

CLIENTS, PASSWORD = 6, "r_word-not-to-be-seen"
ELSEWHERE = "127.0.0.2"
STARTS = {"redis": redis_server, "valkey": valkey_server}


@pytest.fixture(scope="module", params=STARTS)
def server(
    request: pytest.FixtureRequest,
    no_server_is_left: None,  # noqa: ARG001
) -> Iterator[DatabaseServer]:
    with or_skip(), STARTS[request.param]() as started:
        with redis_client(started.port) as client:
            rights = (b"on", b">" + PASSWORD.encode(), b"+client|list", b"+ping", b"+client")
            client.ask(resp(b"ACL", b"SETUSER", b"r_reader", *rights))
        yield started


def _credentials(server: DatabaseServer, directory: Path, password: str) -> tuple[str, ...]:
    product = "valkey" if "valkey" in Path(server.argv[0]).name else "redis"
    return credentials(directory, f'[{product}]\nuser = "r_reader"\npassword = "{password}"\n')


@pytest.mark.beside
@pytest.mark.parametrize("with_credentials", [True, False], ids=["with credentials", "without"])
def test_names_by_the_servers_list(
    server: DatabaseServer, tmp_path: Path, with_credentials: bool
) -> None:
    """A connection that first speaks later has its name, too; a renamed one has both names."""
    options = ["--pid", str(server.pid), "--client-tags"]
    options += _credentials(server, tmp_path, PASSWORD) if with_credentials else ()
    with ExitStack() as stack:
        clients = [stack.enter_context(redis_client(server.port)) for _ in range(CLIENTS)]
        for at, client in enumerate(clients):
            client.ask(resp(b"CLIENT", b"SETNAME", b"pool-%d" % at))
        with recording(tmp_path / "t", *options) as recorder:
            for speaking in (clients[1:], clients):
                for client in speaking:
                    client.ask(resp(b"ECHO", b"x"))
                time.sleep(1.5)  # for the answer
            for client in clients:
                client.ask(resp(b"GET", b"last"))
            clients[1].ask(resp(b"CLIENT", b"SETNAME", b"renamed"))
            clients[1].ask(resp(b"LLEN", b"renamed"))
    assert "--credentials" not in recorder.messages
    run = Run(tmp_path / "t")
    assert run.loss == {}
    names = {f"pool-{at}" for at in range(CLIENTS)} if with_credentials else set()
    assert set(run.having("GET last")["application"].dropna()) == names
    assert set(run.having("LLEN")["application"]) == {"renamed"}
    rows = attribute(tmp_path / "t", "--by", "application")["rows"]
    assert names <= {row["application"] for row in rows}


@pytest.mark.beside
def test_why_a_server_cannot_be_asked_is_said(server: DatabaseServer, tmp_path: Path) -> None:
    options = _credentials(server, tmp_path, f"wrong-{PASSWORD}")
    with redis_client(server.port) as client:
        client.ask(resp(b"CLIENT", b"SETNAME", b"nobody"))
        where = "--pid", str(server.pid), "--client-tags"
        with recording(tmp_path / "t", *where, *options) as recorder:
            client.ask(resp(b"GET", b"x"))
    assert "CLIENT LIST cannot be read" in recorder.messages
    assert PASSWORD not in recorder.messages


_APART = "exec unshare --net sh -c 'ip link set lo up; exec \"$@\"' sh"


@contextmanager
def _in_another_network() -> Iterator[DatabaseServer]:
    with server_directory() as directory:
        program = directory / "apart"
        program.write_text(f'#!/bin/sh\n{_APART} {installed_redis()} "$@"\n')
        program.chmod(0o755)
        with redis_in(directory, program) as started:
            yield started


@pytest.mark.beside
@pytest.mark.parametrize(
    ("start", "address", "why"),
    [
        (lambda: redis_server("--bind", ELSEWHERE), ELSEWHERE, "no socket of the traced process"),
        (_in_another_network, "127.0.0.1", "another network namespace"),
    ],
)
def test_who_listens_where_the_server_does_not_gets_no_password(
    start: Callable[[], AbstractContextManager[DatabaseServer]],
    address: str,
    why: str,
    tmp_path: Path,
) -> None:
    """Another process has the server's port of 127.0.0.1. Nothing even connects to it."""
    with start() as server, socket.create_server(("127.0.0.1", server.port)) as listening:
        assert why in _recorded(server, tmp_path, address)
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):
            listening.accept()


@pytest.mark.beside
def test_another_user_s_server_gets_no_password(tmp_path: Path) -> None:
    with redis_server(account=Account(SOMEBODY, SOMEBODY)) as server:
        messages = _recorded(server, tmp_path)
        with server.connect() as client:
            assert not {"auth", "hello"} & command_stats(client).keys()
    assert f'[redis] is not for servers of {SOMEBODY}: add "{SOMEBODY}" to its users' in messages


def _recorded(server: DatabaseServer, directory: Path, address: str = "127.0.0.1") -> str:
    """Records a server that has to be queried for a connection's name; returns the messages."""
    network = f"--net=/proc/{server.pid}/ns/net"
    command = ["nsenter", network, "redis-cli", "-h", address, "-p", str(server.port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, bufsize=0) as client:
        assert client.stdin is not None
        client.stdin.write(b"client setname before\n")
        with server.connect() as other:
            until(lambda: "before" in [client_row["name"] for client_row in other.client_list()])
        where = "--pid", str(server.pid), "--client-tags"
        options = _credentials(server, directory, PASSWORD)
        with recording(directory / "t", *where, *options) as recorder:
            for _ in range(3):
                client.stdin.write(b"get x\n")
                time.sleep(0.5)
    return " ".join(recorder.messages.split())


# ---- encrypted connections -----------------------------------------------------------------------


@pytest.mark.beside
def test_redis_with_tls_is_not_exact_and_its_sessions_are_loss(
    redis: DatabaseServer, tmp_path: Path
) -> None:
    """This holds also if TLS is configured later. A server on a unix socket alone has none."""
    assert (planned(redis).choice.attach_mode, planned(redis).choice.exact) == (
        AttachMode.SOCKET,
        True,
    )
    key, certificate = self_signed(tmp_path)
    pems = ("--tls-cert-file", str(certificate), "--tls-key-file", str(key))
    more = ("--tls-ca-cert-file", str(certificate), "--tls-auth-clients", "no")
    with redis_server(*pems, *more) as server, server.connect() as client:
        assert planned(server).choice.exact
        port = free_port()
        client.config_set("tls-port", port)
        choice = planned(server).choice
        assert not choice.exact
        assert "with TLS" in choice.why
        with recording(tmp_path / "t", "--pid", str(server.pid)):
            with server.connect(
                tcp=True, port=port, ssl=True, ssl_cert_reqs="none", ssl_check_hostname=False
            ) as secure:
                secure.get("hidden:1")
            client.get("plain:1")
        client.config_set("tls-port", 0)
        client.config_set("port", 0)
        assert planned(server).choice.exact
    run = Run(tmp_path / "t")
    assert run.loss == {"opaque_session": 1}
    counted = run.executions()
    assert (counted["GET plain:?"], counted["GET hidden:?"]) == (1, 0)


# --------------------------------------------------------------------------------------------------
#
# A Redis that has the machine to itself: its CPU time, and a recording in which it restarts.

#: Of a recording of all servers, other servers' statements included: its own must find room.
ROOM = ("--ring-mb", "64")
HEAVY = {"SORT n": "SORT n LIMIT 0 1", "EVAL": "EVAL {loop} 0"}
LOOP = "local x = 0 for i = 1, 2000000 do x = x + i end return x"
ROUNDS = 40


@contextmanager
def undisturbed(pid: int) -> Iterator[None]:
    """Prevents ordinary processes from preempting this server's main thread."""
    os.sched_setscheduler(pid, os.SCHED_FIFO, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))


def test_redis_cpu_time_equals_the_servers_own(redis: DatabaseServer, tmp_path: Path) -> None:
    """Commands that take much longer than reading and answering them, run one at a time.

    The server measures elapsed time, which equals CPU time only while nothing else gets its CPU. So
    only commands that had the CPU from beginning to end count. The kernel reserves a twentieth of
    the CPU for others (Documentation/scheduler/sched-rt-group.rst).
    """
    theirs_us: dict[str, list[float]] = {text: [] for text in HEAVY}
    with undisturbed(redis.pid), redis.connect() as client:
        client.eval(
            "for i = 1, 60000 do redis.call('rpush', KEYS[1], i * 7919 % 60013) end", 1, "n"
        )
        with recording(tmp_path / "t", "--pid", str(redis.pid)):
            for _ in range(ROUNDS):
                for text, command in HEAVY.items():
                    name = text.split()[0].lower()
                    before = command_stats(client).get(name, {"usec": 0})["usec"]
                    client.execute_command(*(w.format(loop=LOOP) for w in command.split()))
                    theirs_us[text].append(command_stats(client)[name]["usec"] - before)
    run = Run(tmp_path / "t")
    segments = run.trace.pandas("segments")
    cpu_ns = (segments["t1_ns"] - segments["t0_ns"]).groupby(segments["query"]).sum()
    for text, us in theirs_us.items():
        queries = run.queries[run.queries["text"] == text].sort_values("begin_ns")
        ours_ns = cpu_ns.reindex(queries["query"]).to_numpy()
        theirs_ns = np.array(us) * 1e3
        assert len(ours_ns) == len(theirs_ns)
        alone = ours_ns > 0.995 * (queries["end_ns"] - queries["begin_ns"]).to_numpy()
        assert alone.sum() >= ROUNDS // 10, text
        assert ours_ns[alone].sum() == pytest.approx(theirs_ns[alone].sum(), rel=tolerance()), text


def test_redis_restarted_while_recording(tmp_path: Path) -> None:
    """Under the name of a file, or with a value, that looks like a Sentinel's option, too."""
    configuration = tmp_path / "redis-sentinel"
    configuration.write_text("")
    odd = ("--pidfile", str(tmp_path / "--sentinel"))
    with redis_server() as server, recording(tmp_path / "t", *ROOM):
        for turn in ("first", "again"):
            with server.connect() as client:
                client.get(f"{turn}:1")
            server.stop()
            server.start()
        server.stop()
        server.argv = [server.argv[0], str(configuration), *server.argv[1:], *odd]
        server.start()
        with server.connect(tcp=True) as client:
            client.get("odd:1")
    run = Run(tmp_path / "t")
    assert run.loss == {}
    counted = run.executions()
    assert [counted[f"GET {turn}:?"] for turn in ("first", "again", "odd")] == [1, 1, 1]
