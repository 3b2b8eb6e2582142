# SPDX-License-Identifier: Apache-2.0
"""What clients do to a Redis in the tests, and what its statistics say about it."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import psutil

from qjoule_studies.servers.process import DatabaseServer
from servers.databases import command_stats
from tracing.redis_client import resp
from waiting import until

CLIENTS = 64
PLAIN = 25_000  #: SETs, and as many GETs, one at a time
PIPELINED = 16_000  #: INCRs, 16 in a pipeline
TRANSACTIONS = 300
SCRIPTS = 200
BLOCKED = 50
PUBLISHED = 100
LONG_VALUE = 1_500_000

SCRIPT = "for i = 1, 5 do redis.call('incr', KEYS[1]) end return 1"
IN_SCRIPT = 5  #: INCRs of each run

#: Shapes that the story has on every server, and their counts.
COMMON_SHAPES = {
    "SET user:?:name": PLAIN,
    "GET user:?:name": PLAIN,
    "INCR hits:?": PIPELINED,
    "EVAL": SCRIPTS,
    "MULTI; SET order:?; LPUSH orders:open; EXEC": 4 * TRANSACTIONS,
}


@dataclass
class Story:
    before: dict[str, dict[str, float]]
    after: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def calls(self) -> Counter[str]:
        """How often the server called each command in the block; INFO is this test's own."""
        counts: Counter[str] = Counter()
        for name, row in self.after.items():
            counts[name] += int(row["calls"] - self.before.get(name, {"calls": 0})["calls"])
        counts.pop("info", None)
        return +counts


def tell(server: DatabaseServer, referee: Any) -> Story:
    """Runs the whole workload; returns once the server has executed it."""
    story = Story(command_stats(referee))
    benchmark(server, "-n", str(PLAIN), "-r", "100000", "set", "user:__rand_int__:name", "x")
    benchmark(server, "-n", str(PLAIN), "-r", "100000", "get", "user:__rand_int__:name")
    benchmark(server, "-n", str(PIPELINED), "-P", "16", "incr", "hits:42")
    _transactions(server)
    _scripts(server)
    _blocking(server)
    _publishing(server)
    _pieces(server)
    _snapshot(server)
    story.after = command_stats(referee)
    return story


def benchmark(server: DatabaseServer, *arguments: str) -> None:
    where = ["-h", "127.0.0.1", "-p", str(server.port), "-c", str(CLIENTS), "-q"]
    subprocess.run(
        ["redis-benchmark", *where, *arguments],
        check=True,
        stdout=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        timeout=180,
    )


def _transactions(server: DatabaseServer) -> None:
    with server.connect() as client:
        for number in range(TRANSACTIONS):
            pipe = client.pipeline(transaction=True)
            pipe.set(f"order:{number}", "secret-value")
            pipe.lpush("orders:open", number)
            pipe.execute()


def _scripts(server: DatabaseServer) -> None:
    with server.connect(tcp=True) as client:
        for _ in range(SCRIPTS):
            client.eval(SCRIPT, 1, "scripted")


def _blocking(server: DatabaseServer) -> None:
    """One client waits for a value, and nearly always the other one pushes it later."""

    def wait() -> None:
        with server.connect() as client:
            for _ in range(BLOCKED):
                assert client.blpop(["queue:1"], timeout=60)

    waiter = threading.Thread(target=wait)
    waiter.start()
    with server.connect() as client:
        for number in range(BLOCKED):
            client.rpush("queue:1", number)
    waiter.join()


def _publishing(server: DatabaseServer) -> None:
    with server.connect() as client, server.connect() as reader:
        subscription = reader.pubsub()
        subscription.subscribe("news:sport")
        assert subscription.get_message(timeout=60)
        for number in range(PUBLISHED):
            assert client.publish("news:sport", f"secret-value {number}") == 1
        for _ in range(PUBLISHED):
            assert subscription.get_message(timeout=60)
        subscription.close()


def _pieces(server: DatabaseServer) -> None:
    """Commands in pieces, as plain lines, with long and unusual arguments; and refused ones."""
    with server.connect() as client:
        client.set("long:1", b"v" * LONG_VALUE)
        client.set(b"session:3f2b8c1e-ab12-beef-9c1d-aabbccddeeff", "secret-value")
        client.set(b"k" * 5000, "secret-value")
        client.set(b"\xff\x00binary\r\n$3\r\n:9", "secret-value")
        connection = client.connection
        for byte in b"*3\r\n$3\r\nSET\r\n$8\r\npiece:77\r\n$1\r\nv\r\n":
            connection._sock.sendall(bytes([byte]))
        assert connection.read_response() == b"OK"
        connection._sock.sendall(b"\r\nset inline:5 secret-value\r\nping\r\n")
        assert connection.read_response() == b"OK"
        assert connection.read_response() in (b"PONG", "PONG")


def _snapshot(server: DatabaseServer) -> None:
    """A forked process writes all keys to a file."""
    with server.connect() as client:
        client.bgsave()
        until(lambda: not client.info("persistence")["rdb_bgsave_in_progress"])


def ask_at_once(server: DatabaseServer, clients: int = 32, rounds: int = 20) -> int:
    """Sends commands in rounds, each before the server's next turn: io-threads have work."""
    ask, answer = resp(b"GET", b"x:1"), b"$-1\r\n"
    with ExitStack() as stack:
        address = ("127.0.0.1", server.port)
        wires = [
            stack.enter_context(socket.create_connection(address, timeout=60))
            for _ in range(clients)
        ]
        for _ in range(rounds):
            with _stopped(server.pid):
                for wire in wires:
                    wire.sendall(ask)
            for wire in wires:
                received = b""
                while len(received) < len(answer):
                    received += wire.recv(len(answer) - len(received))
                assert received == answer
    return clients * rounds


@contextmanager
def _stopped(pid: int) -> Iterator[None]:
    process = psutil.Process(pid)
    process.suspend()
    try:
        until(lambda: process.status() == psutil.STATUS_STOPPED)
        yield
    finally:
        process.resume()
