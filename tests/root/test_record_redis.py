"""Counts, times and shapes on a real Redis: what the server says it did is what the trace says."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import subprocess
import termios
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from qjoule.contract import Block, Mode, OwnerKind, QueryFlag
from root.support import redis_story as day
from root.support.recording import Run, recording
from root.support.tracer import tracing
from servers.process import DatabaseServer, Unavailable, free_port
from servers.redis import command_stats, redis_server

pytestmark = [pytest.mark.root, pytest.mark.server]


@dataclass
class Told:
    story: day.Story
    run: Run


@pytest.fixture(scope="module")
def told(redis: DatabaseServer, tmp_path_factory: pytest.TempPathFactory) -> Told:
    directory = tmp_path_factory.mktemp("redis") / "trace"
    with redis.connect() as referee:
        with recording(directory, "--pid", str(redis.pid), "--ring-mb", "64"):
            story = day.tell(redis, referee)
        return Told(story, Run(directory))


def test_redis_nothing_is_lost(told: Told) -> None:
    assert told.run.loss == {}
    assert told.run.trace.complete
    assert set(told.run.queries["rung"]) == {"socket"}


def test_redis_every_command_counts(told: Told) -> None:
    """The server's own count, of all but what scripts called: that came over no socket."""
    calls = told.story.calls
    assert calls["set"] + calls["get"] + calls["incr"] > 100_000
    counted = told.run.executions()
    del counted["INFO"]  # the referee's questions
    del counted["CLIENT SETINFO"]  # the driver's greeting: Redis 7.0 knows no such subcommand
    assert counted.total() == calls.total() - day.IN_SCRIPT * day.SCRIPTS


def test_redis_commands_count_under_their_own_shape(told: Told) -> None:
    counted = told.run.executions()
    expected = {
        "SET user:?:name": day.PLAIN,
        "GET user:?:name": day.PLAIN,
        "INCR hits:?": day.PIPELINED,
        "EVAL": day.SCRIPTS,
        "BLPOP queue:?": day.BLOCKED,
        "RPUSH queue:?": day.BLOCKED,
        "SUBSCRIBE news:sport": 1,
        "PUBLISH news:sport": day.PUBLISHED,
        "MULTI; SET order:?; LPUSH orders:open; EXEC": 4 * day.TRANSACTIONS,
        "SET long:?": 1,
        "SET session:?": 1,
        "SET piece:?": 1,
        "SET " + "k" * 64 + "…": 1,
    }
    assert {text: counted[text] for text in expected} == expected


def test_redis_pipelines_of_different_commands_are_one_request(told: Told) -> None:
    mixed = told.run.flagged(QueryFlag.PIPELINED)
    assert Counter(mixed["text"])["MULTI; SET order:?; LPUSH orders:open; EXEC"] == day.TRANSACTIONS


def test_redis_no_value_is_told(told: Told) -> None:
    shapes = told.run.trace.pandas("shapes")
    assert not [text for text in shapes["text"] if "secret" in text or "redis.call" in text]
    assert len(told.run.trace.pandas("statements")) == 0


def test_redis_a_command_that_blocks_lasts_until_its_reply(told: Told) -> None:
    blocked = told.run.queries[told.run.queries["text"] == "BLPOP queue:?"].sort_values("begin_ns")
    pushed = told.run.queries[told.run.queries["text"] == "RPUSH queue:?"].sort_values("begin_ns")
    # The n-th element is popped after it was pushed, whenever its reader began to wait.
    assert (blocked["end_ns"].to_numpy() > pushed["begin_ns"].to_numpy()).all()


@contextmanager
def undisturbed(pid: int) -> Iterator[None]:
    """Ordinary processes do not preempt this one's main thread."""
    os.sched_setscheduler(pid, os.SCHED_FIFO, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))


def test_redis_cpu_time_equals_the_servers_own(redis: DatabaseServer, tmp_path: Path) -> None:
    """Commands that take much longer than reading and answering them. The server's usec are by the
    clock: they are CPU time as long as nothing else gets its CPU."""
    with undisturbed(redis.pid), redis.connect() as client:
        client.eval(
            "for i = 1, 20000 do redis.call('rpush', KEYS[1], i * 7919 % 20011) end", 1, "n"
        )
        before = command_stats(client)
        with recording(tmp_path / "t", "--pid", str(redis.pid)):
            for _ in range(25):
                client.execute_command("SORT", "n", "LIMIT", 0, 1)
                client.eval("local x = 0 for i = 1, 1000000 do x = x + i end return x", 0)
                client.ping()
        after = command_stats(client)
    run = Run(tmp_path / "t")
    segments = run.trace.pandas("segments")
    cpu_ns = (segments["t1_ns"] - segments["t0_ns"]).groupby(segments["query"]).sum()
    for text, name in (("SORT n", "sort"), ("EVAL", "eval")):
        mine = cpu_ns.reindex(run.queries[run.queries["text"] == text]["query"]).sum()
        said_us = after[name]["usec"] - before.get(name, {"usec": 0})["usec"]
        assert mine / 1e3 == pytest.approx(said_us, rel=0.03), name


def test_redis_snapshot_is_background(redis: DatabaseServer, tmp_path: Path) -> None:
    with redis.connect() as client, recording(tmp_path / "t", "--pid", str(redis.pid)):
        client.eval("for i = 1, 100000 do redis.call('set', 'key:' .. i, i) end", 0)
        client.bgsave()
        while client.info("persistence")["rdb_bgsave_in_progress"]:
            time.sleep(0.01)
        client.flushall()
    run = Run(tmp_path / "t")
    segments, owners = run.trace.pandas("segments"), run.trace.pandas("owners")
    owners = owners.set_index("owner")
    spent = (segments["t1_ns"] - segments["t0_ns"]).groupby(segments["owner"]).sum()
    forks = owners[(owners["kind"] == "server") & (owners["tgid"] != redis.pid)]
    assert set(forks["role"]) == {"redis-fork"}
    assert spent.reindex(forks.index).sum() > 1_000_000


def test_redis_commands_in_random_pieces(redis: DatabaseServer, tmp_path: Path) -> None:
    """Whatever is cut where, also of a connection that was open before: the counts stay."""
    rng = random.Random(7)
    commands = [_resp(b"SET", b"cut:%d" % n, b"v" * rng.choice((0, 1, 9, 900))) for n in range(400)]
    stream = b"".join(commands)
    with redis.connect() as client:
        wire = client.connection._sock
        with recording(tmp_path / "t", "--pid", str(redis.pid)):
            wire.sendall(commands[0])  # a clear beginning: whole in one read
            assert client.connection.read_response() == b"OK"
            at = 0
            while at < len(stream):
                size = rng.choice((1, 2, 3, 5, 17, 64, 300, 4000))
                wire.sendall(stream[at : at + size])
                at += size
            for _ in range(len(commands)):
                assert client.connection.read_response() == b"OK"
    run = Run(tmp_path / "t")
    assert run.loss == {}
    assert run.executions() == {"SET cut:?": len(commands) + 1}


def test_redis_attached_in_the_middle_of_a_command(redis: DatabaseServer, tmp_path: Path) -> None:
    """The rest of that command is no command: it is lost, and said so; the next one counts."""
    with redis.connect() as client:
        wire = client.connection._sock
        wire.sendall(b"*3\r\n$3\r\nSET\r\n$4\r\nhalf\r\n$9\r\n*3\r")
        wait_until_read(wire)
        with recording(tmp_path / "t", "--pid", str(redis.pid)):
            wire.sendall(b"\n$1234\r\n")
            assert client.connection.read_response() == b"OK"
            wire.sendall(_resp(b"GET", b"whole:1"))
            client.connection.read_response()
    run = Run(tmp_path / "t")
    assert run.loss == {"framing": 1}
    assert run.executions() == {"GET whole:?": 1}


def test_redis_nonsense_is_refused_and_harms_nobody(redis: DatabaseServer, tmp_path: Path) -> None:
    nonsense = [
        b"*1\r\n$99999999999999999999\r\n",
        b"*-5\r\n*1\r\n$-1\r\n",
        b"*99999999999\r\n",
        b"*1\r\n!4\r\nPING\r\n",
        b"*2\r\n$4\r\nPING\r\n*1\r\n",
        b"\x00\xff" * 5000 + b"\r\n",
        b"*" + b"1" * 100 + b"\r\n",
    ]
    with recording(tmp_path / "t", "--pid", str(redis.pid)):
        for bytes_ in nonsense:
            with socket.create_connection(("127.0.0.1", redis.port), timeout=5) as wire:
                wire.sendall(bytes_)
                wire.shutdown(socket.SHUT_WR)
                while wire.recv(4096):
                    pass
        with redis.connect() as client:
            for _ in range(50):
                client.get("sane:1")
    run = Run(tmp_path / "t")
    assert run.executions()["GET sane:?"] == 50
    assert set(run.loss) <= {"framing"}


def test_redis_io_threads_that_write(tmp_path: Path) -> None:
    with served("--io-threads", "2") as server:
        with recording(tmp_path / "t", "--pid", str(server.pid)):
            day.benchmark(server, "-n", "4000", "-P", "4", "get", "x:1")
        run = Run(tmp_path / "t")
    assert run.loss == {}
    assert run.executions()["GET x:?"] == 4000
    owners = run.trace.pandas("owners")
    assert "io_thd_1" in set(owners[owners["kind"] == "server"]["role"])


def test_redis_io_threads_that_read_are_loss(tmp_path: Path) -> None:
    """What they read cannot be told apart, so nothing is made of it, and it is said."""
    options = ("--io-threads", "2", "--io-threads-do-reads", "yes")
    with served(*options) as server:
        with recording(tmp_path / "t", "--pid", str(server.pid)):
            day.benchmark(server, "-n", "3000", "get", "x:1")
        run = Run(tmp_path / "t")
    assert run.loss["framing"] > 0
    asked = 2  # CONFIG GET, by the benchmark itself
    assert run.executions().total() + run.loss["framing"] == 3000 + asked


def test_redis_live_view_counts_the_same(redis: DatabaseServer) -> None:
    with tracing(Mode.LIVE, *_plan(redis), "--energy", "none") as session:
        day.benchmark(redis, "-n", "20000", "get", "x:1")
        session.finish()
    sums = session.records(Block.AGGREGATE)
    queries = sums[sums["owner_kind"] == OwnerKind.QUERY]
    by_shape = Counter[int]()
    for row in queries:
        by_shape[int(row["shape"])] += int(row["calls"])
    assert 20_000 in by_shape.values()


def _plan(server: DatabaseServer) -> list[str]:
    return ["--server", f"1:redis:socket:{server.executable}", "--running", f"1:{server.pid}"]


def _resp(*parts: bytes) -> bytes:
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts)


def wait_until_read(wire: socket.socket) -> None:
    """Until the other side has taken what was sent."""
    unsent = bytearray(4)
    while True:
        fcntl.ioctl(wire, termios.TIOCOUTQ, unsent)
        if not any(unsent):
            return
        time.sleep(0.001)


@contextmanager
def served(*options: str) -> Iterator[DatabaseServer]:
    try:
        with redis_server(*options) as server:
            yield server
    except Unavailable as reason:
        pytest.skip(str(reason))


def test_redis_sessions_with_tls_are_loss(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    files = ["-nodes", "-subj", "/CN=test", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*new, *files], check=True, capture_output=True)
    port = free_port()
    pems = ("--tls-cert-file", str(certificate), "--tls-key-file", str(key))
    more = ("--tls-ca-cert-file", str(certificate), "--tls-auth-clients", "no")
    with served("--tls-port", str(port), *pems, *more) as server:
        with recording(tmp_path / "t", "--pid", str(server.pid)):
            with server.connect(
                tcp=True, port=port, ssl=True, ssl_cert_reqs="none", ssl_check_hostname=False
            ) as client:
                client.get("hidden:1")
            with server.connect() as client:
                client.get("plain:1")
        run = Run(tmp_path / "t")
    assert run.loss == {"opaque_session": 1}
    counted = run.executions()
    assert counted["GET plain:?"] == 1
    assert "GET hidden:?" not in counted
