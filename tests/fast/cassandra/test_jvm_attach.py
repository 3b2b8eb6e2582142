# SPDX-License-Identifier: Apache-2.0
"""qjoule's agent: how a JVM is asked to load it, which answers count, and its probes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NoReturn

import pytest

from other_user import for_all_users
from qjoule.contract import AttachMode
from qjoule.errors import QjouleError
from qjoule.servers.cassandra.agent import agent_files, marker_probes
from qjoule.servers.choice import KernelFacts
from qjoule.servers.jvm.attach import CannotAttach, Jvm, command, load_agent
from qjoule.servers.jvm.process import Identity, ended, identity_of
from qjoule.servers.plan import build_plan
from qjoule.servers.registered import put_agents
from qjoule.servers.resolution import Agent
from qjoule.servers.types import Fact, Server

OWN_PID = 7
#: Listens after SIGQUIT if the trigger file exists, as a JVM does; answers with what it was sent.
LISTENS = """
import os, signal, socket, sys
os.chdir(sys.argv[1])
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGQUIT])
print("ready", flush=True)
signal.sigwait([signal.SIGQUIT])
assert os.path.exists(".attach_pid7")
with socket.socket(socket.AF_UNIX) as listening:
    listening.bind(".java_pid7")
    listening.listen()
    connection, _ = listening.accept()
words = b""
while words.count(b"\\0") < 5:
    words += connection.recv(4096)
connection.sendall(words)
"""


@contextmanager
def jvm_at(
    root: Path, pid: int, *, seconds: float = 60.0, may_signal: bool = True
) -> Iterator[Jvm]:
    top = os.open(root, os.O_PATH | os.O_DIRECTORY)
    handle = os.pidfd_open(pid)
    try:
        yield Jvm(100, OWN_PID, top, handle, may_signal, seconds)
    finally:
        os.close(top)
        os.close(handle)


@pytest.fixture
def root() -> Iterator[Path]:
    """A directory with a short name: the path of a socket in it may have only 107 bytes."""
    with tempfile.TemporaryDirectory(dir=for_all_users()) as directory:
        (Path(directory) / "tmp").mkdir()
        yield Path(directory)


@contextmanager
def listening_at(path: Path, answer: Callable[[socket.socket], object]) -> Iterator[None]:
    """A thread that answers one connection."""

    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            answer(connection)

    with socket.socket(socket.AF_UNIX) as listening:
        directory = os.open(path.parent, os.O_PATH)
        listening.bind(f"/proc/self/fd/{directory}/{path.name}")
        os.close(directory)
        listening.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        yield
        thread.join()


def test_a_jvm_that_does_not_listen_yet(root: Path) -> None:
    started = [sys.executable, "-c", LISTENS, str(root / "tmp")]
    with subprocess.Popen(started, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        with jvm_at(root, child.pid) as jvm:
            assert command(jvm, "load", "x") == "1\0load\0x\0\0\0"
        assert child.wait() == 0
    assert [path.name for path in (root / "tmp").iterdir()] == [".java_pid7"]


def test_the_signal_goes_to_the_process_and_not_to_its_number(root: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as ended, subprocess.Popen(["sleep", "60"]) as other:
        try:
            handle = os.pidfd_open(ended.pid)
            ended.kill()
            ended.wait()
            top = os.open(root, os.O_PATH)
            jvm = Jvm(other.pid, other.pid, top, handle, True, 60.0)
            with pytest.raises(CannotAttach, match="No such process"):
                command(jvm, "load")
            assert other.poll() is None
            os.close(top)
            os.close(handle)
        finally:
            other.kill()
    assert list((root / "tmp").iterdir()) == []


def test_a_link_in_place_of_the_socket_is_not_followed(root: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(root / "other"))
        listening.listen()
        (root / "tmp" / ".java_pid7").symlink_to(root / "other")
        with jvm_at(root, os.getpid()) as jvm, pytest.raises(CannotAttach, match="is no socket"):
            command(jvm, "load")


def _says(answer: bytes) -> Callable[[socket.socket], None]:
    def say(jvm: socket.socket) -> None:
        jvm.recv(4096)
        jvm.sendall(answer)

    return say


@pytest.mark.parametrize(
    ("answer", "loaded"),
    [
        *((answer, True) for answer in (b"0\n", b"0\nreturn code: 0")),
        *((answer, False) for answer in (b"", b"0\n102\n", b"\xff\0")),
    ],
)
def test_the_answer_tells_whether_the_agent_was_loaded(
    root: Path, answer: bytes, loaded: bool
) -> None:
    refused = pytest.raises(CannotAttach, match="could not load the agent")
    with (
        listening_at(root / "tmp" / ".java_pid7", _says(answer)),
        jvm_at(root, os.getpid()) as jvm,
        nullcontext() if loaded else refused,
    ):
        load_agent(jvm, "/tmp/a.jar", "/tmp")


@pytest.mark.parametrize("inside", [False, True])
def test_a_tmp_that_leads_out_of_the_root(root: Path, inside: bool) -> None:
    """To the JVM that is a directory below its own root; `outside` is a different one here."""
    own = root / "own"
    for directory in (own, root / "outside", *([own / "outside"] if inside else [])):
        directory.mkdir()
    (own / "tmp").symlink_to("../outside")
    with (
        jvm_at(own, os.getpid(), may_signal=False) as jvm,
        pytest.raises(CannotAttach, match="SIGQUIT" if inside else "/tmp is no directory"),
        socket.socket(socket.AF_UNIX) as listening,
    ):
        listening.bind(str(root / "outside" / ".java_pid7"))
        listening.listen()
        command(jvm, "load")


KERNEL = KernelFacts(reads=True, sends=True, uprobes=True)
MARKED = "/tmp/qjoule-1/libqjoule_agent.so (deleted)"


def cassandra(tgid: int) -> Server:
    java, fact = Path("/usr/bin/java"), Fact(False, "")
    tgids = (tgid,) if tgid else ()
    return Server(
        *(0, "cassandra", "5.0.9", java, str(java), (1, 2), tgids, (9042,), (), fact),
        thread_pool=Fact(True, ""),
    )


def agent(handle: int = 7) -> Agent:
    lease = os.open(os.devnull, os.O_RDONLY)
    return Agent(MARKED, handle, marker_probes(agent_files()[-1]), lease)


def nobody_is_reached(pid: int, _exe_id: tuple[int, int]) -> NoReturn:
    raise ended(pid)


def test_a_server_with_an_agent_is_on_its_attach_mode() -> None:
    plan = build_plan([cassandra(100)], KERNEL, agents={100: agent()})
    (planned,) = plan.traced
    assert planned.choice.attach_mode is AttachMode.AGENT
    assert planned.choice.exact
    arguments = " ".join(plan.arguments())
    assert "--server 1:cassandra:agent:1:2" in arguments
    assert planned.library == str(MARKED)
    assert arguments.count("--probe 1:cassandra-") == 6
    for probe in planned.probes:
        where = f"7:{probe.site.offset:#x}:{probe.code.hex()}"
        assert f"--probe 1:{probe.role}:{where}" in arguments


@pytest.mark.parametrize(
    ("server", "why"),
    [(cassandra(0), "for Cassandra, and none runs"), (cassandra(100), "process 100 has ended")],
)
def test_an_agent_needs_a_cassandra_that_runs(server: Server, why: str) -> None:
    with pytest.raises(QjouleError, match=why):
        put_agents([server], nobody_is_reached, set())


@pytest.mark.parametrize(("uids", "of_root"), [("5 5 5 5", False), ("5 5 5 0", True)])
def test_who_a_jvm_is(uids: str, of_root: bool) -> None:
    status = f"Pid:\t7\nUid:\t{uids}\nGid:\t6 8 6 6\nNSpid:\t7\t3\t1\n"
    assert identity_of(7, status) == Identity(5, 8, 1, of_root)
    for damaged in ("", "Pid:\t7\nUid:\t0\n", "Pid:\t7\nUid:\tx y\nGid:\t0 0\n"):
        with pytest.raises(CannotAttach, match="has ended"):
            identity_of(7, damaged)
