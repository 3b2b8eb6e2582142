# SPDX-License-Identifier: Apache-2.0
"""Counts, shapes and loss on a real memcached: its statistics equal the trace's."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import ssl
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import psutil
import pytest

from qjoule.contract import QueryFlag
from qjoule_studies.servers.prerequisites import Unavailable
from qjoule_studies.servers.process import DatabaseServer, free_port, running, server_directory
from servers.databases import self_signed
from tracing.recording import Run, Trial, at_once, check_no_waits, check_whole, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

# ---- memcached from the distribution (`memcached`), and a client ---------------------------------

THREADS = 4


class Client:
    """One connection. `text` sends its argument and reads that many replies."""

    def __init__(self, server: DatabaseServer) -> None:
        self._socket = socket.create_connection(("127.0.0.1", server.port), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def line(self) -> bytes:
        return self._file.readline().rstrip(b"\r\n")

    def text(self, data: bytes, replies: int = 1) -> list[bytes]:
        """The lines up to the last reply, without values and their headers."""
        self.send(data)
        return [self._reply() for _ in range(replies)]

    def _reply(self) -> bytes:
        while True:
            line = self.line()
            head, *fields = line.split()
            if head == b"VALUE":
                self._file.read(int(fields[2]) + 2)
            elif head == b"VA":
                self._file.read(int(fields[0]) + 2)
                return line
            else:
                return line

    def stats(self) -> dict[str, int]:
        self.send(b"stats\r\n")
        values: dict[str, int] = {}
        while (line := self.line()) != b"END":
            _, name, value = line.split(b" ", 2)
            if value.isdigit():
                values[name.decode()] = int(value)
        return values


@contextmanager
def memcached_server(*options: str) -> Iterator[DatabaseServer]:
    """A memcached with these additional options. Raises Unavailable."""
    program = shutil.which("memcached")
    if program is None:
        raise Unavailable("memcached is not installed (package memcached)")
    with server_directory() as directory:
        port = free_port()
        user = pwd.getpwuid(os.geteuid()).pw_name
        argv = [program, "-l", "127.0.0.1", "-p", str(port), "-t", str(THREADS), "-u", user]
        argv += options
        server = DatabaseServer("memcached", directory, argv, port, directory / "s", _connect)
        with running(server) as started:
            yield started


def _connect(server: DatabaseServer, _tcp: bool, _arguments: dict[str, Any]) -> Client:
    return Client(server)


# ---- the tests -----------------------------------------------------------------------------------

CLIENTS = 32
ROUNDS = 100  #: of each client: a set, a get, a silent set and a get of ten keys
MANY = 10
PIPELINED = 50  #: more than a worker executes for one connection at a time
LARGE = 600_000


@dataclass
class Story:
    before: dict[str, int]
    after: dict[str, int] = field(default_factory=dict)

    def count(self, *names: str) -> int:
        """The growth of the sum of these statistics."""
        return sum(self.after[name] - self.before[name] for name in names)


def tell(server: DatabaseServer) -> Story:
    """Runs the whole workload; returns once the server has executed it."""
    with Client(server) as referee:
        story = Story(referee.stats())
        at_once(lambda number: _run_client(server, number), range(CLIENTS))
        _pipelined(server)
        _pieces(server)
        _meta(server)
        story.after = referee.stats()
    return story


def _run_client(server: DatabaseServer, number: int) -> None:
    many = b" ".join(b"user:%d" % i for i in range(MANY))
    with Client(server) as client:
        for i in range(ROUNDS):
            key = b"user:%d" % (number * ROUNDS + i)
            assert client.text(b"set %s 0 0 6\r\nsecret\r\n" % key) == [b"STORED"]
            assert client.text(b"get %s\r\n" % key) == [b"END"]
            client.send(b"set quiet:%d 0 0 2 noreply\r\nab\r\n" % i)
            assert client.text(b"get %s\r\n" % many) == [b"END"]
        assert client.text(b"set number:%d 0 0 1\r\n1\r\n" % number) == [b"STORED"]
        assert client.text(b"incr number:%d 41\r\n" % number) == [b"42"]
        assert client.text(b"decr missing:%d 1\r\n" % number) == [b"NOT_FOUND"]
        assert client.text(b"touch number:%d 100\r\n" % number) == [b"TOUCHED"]
        assert client.text(b"gat 100 number:%d\r\n" % number) == [b"END"]
        assert client.text(b"delete number:%d\r\n" % number) == [b"DELETED"]


def _pipelined(server: DatabaseServer) -> None:
    pair = b"set pipe:1 0 0 3\r\nabc\r\nget pipe:1\r\n"
    with Client(server) as client:
        replies = client.text(pair * PIPELINED, 2 * PIPELINED)
        assert replies == [b"STORED", b"END"] * PIPELINED


def _pieces(server: DatabaseServer) -> None:
    """A command in many reads, cut within its line, its value and its line end."""
    with Client(server) as client:
        for piece in (b"se", b"t piece:1 0 ", b"0 5\r", b"\nhe", b"llo", b"\r"):
            client.send(piece)
            time.sleep(0.02)
        assert client.text(b"\n") == [b"STORED"]
        value = b"v" * LARGE
        assert client.text(b"set large:1 0 0 %d\r\n%s\r\n" % (LARGE, value)) == [b"STORED"]
        assert client.text(b"get large:1\r\n") == [b"END"]
        # A value that looks like a command is still a value.
        assert client.text(b"set trap:1 0 0 12\r\nget secret\r\n\r\n") == [b"STORED"]


def _meta(server: DatabaseServer) -> None:
    with Client(server) as client:
        for number in range(ROUNDS):
            assert client.text(b"ms meta:%d 2\r\nhi\r\n" % number) == [b"HD"]
            assert client.text(b"mg meta:%d v\r\n" % number)[0].startswith(b"VA 2")
            assert client.text(b"md meta:%d q\r\nmn\r\n" % number) == [b"MN"]


JOINED = 20  #: gets of a connection that was open before


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial[Story]]:
    """A memcached that also listens on UDP, and beside it one that speaks TLS only."""
    directory = tmp_path_factory.mktemp("memcached")
    key, chain = self_signed(directory)
    tls = ("-Z", "-o", f"ssl_chain_cert={chain},ssl_key={key}")
    with ExitStack() as stack:
        server = stack.enter_context(memcached_server("-U", str(free_port())))
        secure = stack.enter_context(memcached_server(*tls))
        before = stack.enter_context(Client(server))
        before.text(b"get before:1\r\n")
        pids = (f"--pid={traced.pid}" for traced in (server, secure))
        with recording(directory / "trace", *pids, "--ring-mb", "16"):
            story = tell(server)
            for _ in range(JOINED):
                before.text(b"get joined:7\r\n")
            _over_udp(server)
            _over_tls(secure)
        yield Trial(story, Run(directory / "trace"))


def _over_udp(server: DatabaseServer) -> None:
    (port,) = {end.laddr.port for end in psutil.Process(server.pid).net_connections("udp4")}
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as client:
        client.settimeout(30)
        client.sendto(b"\x00\x01\x00\x00\x00\x01\x00\x00get over:udp\r\n", ("127.0.0.1", port))
        assert client.recv(1024).endswith(b"END\r\n")


def _over_tls(server: DatabaseServer) -> None:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    plain = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    with plain, context.wrap_socket(plain) as client:
        client.sendall(b"get over:tls\r\n")
        assert client.recv(1024) == b"END\r\n"


def _by_command(run: Run) -> Counter[str]:
    """Executions by command and pattern; in a request of several, each but the last occurs once."""
    counted: Counter[str] = Counter()
    for text, executions in run.executions().items():
        commands = text.split("; ")
        requests = (run.queries["text"] == text).sum()
        if commands[:2] == ["set pipe:?", "get pipe:?"]:
            counted.update({"set pipe:?": executions // 2, "get pipe:?": executions // 2})
            continue
        for command in commands[:-1]:
            counted[command] += requests
        counted[commands[-1]] += executions - requests * (len(commands) - 1)
    return counted


def test_memcached_udp_and_tls_are_loss_and_nothing_else(trial: Trial[Story]) -> None:
    check_whole(trial.run, "socket", framing=1, opaque_session=1)
    check_no_waits(trial.run.trace)
    assert trial.run.having("over:").empty


def test_memcached_every_command_counts(trial: Trial[Story]) -> None:
    """The server's own counters, command by command."""
    counted = _by_command(trial.run)

    def count_commands(*names: str) -> int:
        return sum(n for command, n in counted.items() if command.split()[0] in names)

    story = trial.story
    assert count_commands("set", "ms") == story.count("cmd_set")
    assert count_commands("get", "mg") - JOINED == story.count("cmd_get")
    assert count_commands("touch", "gat") == story.count("cmd_touch")
    assert count_commands("incr") == story.count("incr_hits", "incr_misses")
    assert count_commands("decr") == story.count("decr_hits", "decr_misses")
    assert count_commands("delete", "md") == story.count("delete_hits", "delete_misses")


def test_memcached_commands_have_their_own_shape(trial: Trial[Story]) -> None:
    counted = _by_command(trial.run)
    clients = CLIENTS
    expected = {
        "get user:?": clients * ROUNDS * (1 + MANY),
        "set user:?": clients * ROUNDS,
        "set quiet:?": clients * ROUNDS,
        "incr number:?": clients,
        "gat number:?": clients,
        "mg meta:?": ROUNDS,
        "md meta:?": ROUNDS,
        "mn": ROUNDS,
        "set piece:?": 1,
        "set large:?": 1,
        "set trap:?": 1,
        "get joined:?": JOINED,
    }
    assert {text: counted[text] for text in expected} == expected


def test_memcached_a_pipeline_is_one_request(trial: Trial[Story]) -> None:
    mixed = trial.run.flagged(QueryFlag.PIPELINED)
    assert (mixed["executions"] >= 2 * PIPELINED - 2).any()


def test_memcached_requests_own_the_workers_cpu_time(trial: Trial[Story]) -> None:
    """At least half of the CPU time of threads that serve requests belongs to requests."""
    segments = trial.run.trace.pandas("segments")
    segments["ns"] = segments["t1_ns"] - segments["t0_ns"]
    of_queries = segments[segments["query"].notna() & (segments["query"] != 0)]
    workers = segments[segments["owner"].isin(of_queries["owner"])]
    assert set(of_queries["query"]) <= set(trial.run.queries["query"])
    assert of_queries["ns"].sum() > 0.5 * workers["ns"].sum()
