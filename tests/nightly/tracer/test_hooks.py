# SPDX-License-Identifier: Apache-2.0
"""The programs on reads, writes, switches and timers where what a CPU runs changes under them.

A byte of each CPU's state says what kind of server its thread works for (bpf/core/segments.bpf.c).
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from qjoule.contract import Block, Loss, Mode
from qjoule.servers.registry import servers
from qjoule_studies.servers.process import free_port
from tracing.tracer import Session, tracing

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

GETS = 500
OFFLINE = Path("/sys/devices/system/cpu/cpu1/online")
START_S = 30.0
OWNERS = 2_000
OWNER_NS = 1_000_000_000  #: more than any of them takes


def planned(number: int, kind: str, program: Path) -> list[str]:
    """Options of the tracer: whoever executes this file is a server of the kind."""
    status = program.stat()
    return ["--server", f"{number}:{kind}:socket:{status.st_dev}:{status.st_ino}"]


def connected(port: int) -> socket.socket:
    """Connects to a server that is about to listen."""
    deadline = time.monotonic() + START_S
    while True:
        with suppress(ConnectionRefusedError):
            return socket.create_connection(("127.0.0.1", port), timeout=START_S)
        assert time.monotonic() < deadline
        time.sleep(0.01)


def get(client: socket.socket, times: int) -> None:
    for _ in range(times):
        client.sendall(b"get absent\r\n")
        assert client.recv(64) == b"END\r\n"


@contextmanager
def memcached(*before: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """`before`: a program that executes memcached, instead of this process."""
    installed = shutil.which("memcached")
    assert installed
    command = [installed, "-u", "nobody", "-l", "127.0.0.1", "-p", str(port), "-U", "0"]
    process = subprocess.Popen([*before, *command], stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def executions(session: Session, server: int) -> int:
    queries = session.records(Block.QUERY)
    return int(queries["executions"][queries["server"] == server].sum())


def test_a_process_that_executes_another_kind_of_server_is_that_one(tmp_path: Path) -> None:
    shell = tmp_path / "shell"
    shutil.copy("/bin/dash", shell)
    port = free_port()
    options = [*planned(1, "redis", shell), *planned(2, "memcached", Path("/usr/bin/memcached"))]
    with (
        tracing(Mode.RECORD, "--energy", "none", *options) as session,
        memcached(str(shell), "-c", 'exec "$@"', "shell", port=port),
        closing(connected(port)) as client,
    ):
        get(client, GETS)
        session.finish()
    assert executions(session, 2) == GETS and executions(session, 1) == 0


def test_64_servers_of_all_kinds_are_told_apart(tmp_path: Path) -> None:
    """All programs on reads and writes are loaded at once, and none is called for another's."""
    kinds = [
        kind.name for kind in servers().values() if "socket" in kind.attach_modes and not kind.of
    ]
    options = planned(1, "memcached", Path("/usr/bin/memcached"))
    for number in range(2, 65):
        program = tmp_path / str(number)
        program.write_bytes(b"")
        options += planned(number, kinds[number % len(kinds)], program)
    port = free_port()
    with (
        tracing(Mode.RECORD, "--energy", "none", *options) as session,
        memcached(port=port),
        closing(connected(port)) as client,
    ):
        get(client, GETS)
        session.finish()
    assert executions(session, 1) == GETS
    assert set(session.records(Block.QUERY)["server"].tolist()) == {1}


@pytest.mark.skipif(not OFFLINE.exists(), reason="no CPU of this machine can be taken offline")
def test_a_cpu_goes_and_comes_back() -> None:
    """What it did stays, what others do counts, and it is no server's when it comes back."""
    port = free_port()
    options = planned(1, "memcached", Path("/usr/bin/memcached"))
    with (
        tracing(Mode.RECORD, "--energy", "none", *options) as session,
        memcached(port=port),
        closing(connected(port)) as client,
    ):
        get(client, GETS)
        OFFLINE.write_text("0")
        try:
            get(client, GETS)
        finally:
            OFFLINE.write_text("1")
        get(client, GETS)
        session.finish()
    assert executions(session, 1) == 3 * GETS
    segments = session.records(Block.SEGMENT)
    for cpu in (0, 1):
        of_cpu = segments[segments["cpu"] == cpu]
        begins, ends = of_cpu["t0_ns"].astype("i8"), of_cpu["t1_ns"].astype("i8")
        order = begins.argsort(kind="stable")
        assert (begins[order][1:] >= ends[order][:-1]).all()


#: Its timer expires 10^5 times a second, ignored, so that no process has to run for it.
TIMERS = """
import signal, time
signal.signal(signal.SIGALRM, signal.SIG_IGN)
signal.setitimer(signal.ITIMER_REAL, 1e-5, 1e-5)
time.sleep(3600)
"""
FORKS = "while :; do /bin/true & /bin/true & wait; done"


@contextmanager
def disturbed(*command: str) -> Iterator[None]:
    """Another user's process, with all that it starts, for the block."""
    nobody = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
    process = subprocess.Popen([*nobody, *command], start_new_session=True)
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize(
    "command",
    [(sys.executable, "-c", TIMERS), ("sh", "-c", FORKS)],
    ids=("10^5 timers a second", "forks without end"),
)
def test_another_users_storm_costs_no_query(command: tuple[str, ...]) -> None:
    """`make bench-hooks` prints the cost in time."""
    port = free_port()
    options = planned(1, "memcached", Path("/usr/bin/memcached"))
    with (
        tracing(Mode.RECORD, "--energy", "none", "--ring-mb", "32", *options) as session,
        memcached(port=port),
        closing(connected(port)) as client,
        disturbed(*command),
    ):
        get(client, GETS)
        session.finish()
    assert executions(session, 1) == GETS
    loss = session.records(Block.LOSS)
    beyond = ~np.isin(loss["cause"], (Loss.SWITCH, Loss.TASK_RATE))
    assert not loss["count"][beyond].any(), loss[beyond]


def test_each_of_thousands_of_owners_in_one_window_has_its_row() -> None:
    """The tracer maps the first rows of a window, and more of them once they are in use."""
    with tracing(
        Mode.LIVE, "--energy", "none", "--window-ms", "10000", "--ring-mb", "64"
    ) as session:
        pids = [os.posix_spawn("/bin/true", ["true"], {}) for _ in range(OWNERS)]
        for pid in pids:
            os.waitpid(pid, 0)
        session.finish()
    sums = session.records(Block.AGGREGATE)
    rows = sums[np.isin(sums["tgid"], pids)]
    assert set(rows["tgid"].tolist()) == set(pids)
    assert rows["cpu_ns"].min() > 0
    assert rows["cpu_ns"].max() < OWNER_NS
    losses = session.records(Block.LOSS)
    assert not losses[losses["cause"] == Loss.AGGREGATE.value]["count"].sum()


#: Two threads of one process on one CPU, each of which runs only when the other has let it.
HAND_OVERS = """
import os, threading
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
here, there = os.pipe(), os.pipe()
def partner():
    while os.read(here[0], 1) != b"e":
        os.write(there[1], b"b")
thread = threading.Thread(target=partner)
thread.start()
for _ in range(30_000):
    os.write(here[1], b"a")
    os.read(there[0], 1)
os.write(here[1], b"e")
thread.join()
"""


def test_threads_of_a_process_that_hand_over_add_up_to_its_cpu_time() -> None:
    """Live view: a slice goes on from thread to thread. The kernel's own sum is the referee."""
    with tracing(Mode.LIVE, "--energy", "none") as session:
        process = subprocess.Popen([sys.executable, "-c", HAND_OVERS])
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0
        session.finish()
    sums = session.records(Block.AGGREGATE)
    cpu_s = sums["cpu_ns"][sums["tgid"] == process.pid].sum() * 1e-9
    assert usage.ru_nvcsw > 30_000
    assert cpu_s == pytest.approx(usage.ru_utime + usage.ru_stime, rel=0.03)
    loss = session.records(Block.LOSS)
    # Switches to some of the kernel's own tasks are invisible, hand-overs are not.
    assert loss["count"][loss["cause"] == Loss.SWITCH].sum() < 300
