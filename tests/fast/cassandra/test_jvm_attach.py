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
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

from qjoule.contract import Rung
from qjoule.errors import QjouleError
from qjoule.servers.agent import Agent
from qjoule.servers.agents import put_agents
from qjoule.servers.cassandra.agent import agent_files, marker_probes
from qjoule.servers.cassandra.signatures import Role
from qjoule.servers.jvm.attach import CannotAttach, Jvm, command, load_agent
from qjoule.servers.jvm.process import Identity, ended, handles_quit, identity_of
from qjoule.servers.kernel_facts import KernelFacts
from qjoule.servers.plan import build_plan
from qjoule.servers.probe_site import SINGLE_STEPPED
from qjoule.servers.types import Fact, Server
from temporary import for_all_users

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
        *((answer, True) for answer in (b"0\n", b"0\n0\n", b"0\nreturn code: 0")),
        *((answer, False) for answer in (b"", b"1\n", b"0\n102\n", b"\xff\0", b"0\n" + b"9" * 20)),
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


def test_a_server_with_an_agent_is_on_its_rung() -> None:
    plan = build_plan([cassandra(100)], KERNEL, agents={100: agent()})
    (planned,) = plan.traced
    assert planned.choice.rung is Rung.AGENT
    assert planned.choice.exact
    arguments = " ".join(plan.arguments())
    assert "--server 1:cassandra:agent:1:2" in arguments
    assert planned.library == str(MARKED)
    assert arguments.count("--probe 1:cassandra-") == 6
    for probe in planned.probes:
        where = f"7:{probe.site.offset:#x}:{probe.code.hex()}"
        assert f"--probe 1:{probe.role}:{where}" in arguments


def test_servers_of_one_jvm_each_have_their_own_probes() -> None:
    agents = {100: agent(), 200: agent(8)}
    plan = build_plan([cassandra(100), cassandra(200), cassandra(300)], KERNEL, agents=agents)
    words = plan.arguments()
    assert [one.library_handle for one in plan.traced] == [7, 8, 0]
    assert sum(word.startswith("2:cassandra-") and ":8:0x" in word for word in words) == 6
    assert plan.traced[2].choice.rung is not Rung.AGENT
    assert "--agent" in plan.traced[2].choice.other


def test_markers_are_where_a_probe_is_cheap() -> None:
    probes = marker_probes(agent_files()[-1], client_tags=True)
    assert {probe.role for probe in probes} == set(Role)
    assert all(probe.site.cost is not SINGLE_STEPPED for probe in probes)


def test_markers_need_no_library() -> None:
    """The server may run in a container with another C library, or an older one."""
    with agent_files()[-1].open("rb") as stream:
        dynamic = ELFFile(stream).get_section_by_name(".dynamic")
        assert isinstance(dynamic, DynamicSection)
        assert [t.entry.d_tag for t in dynamic.iter_tags() if t.entry.d_tag == "DT_NEEDED"] == []


@pytest.mark.parametrize(
    ("servers", "pids", "why"),
    [
        ([], set(), "--agent is for Cassandra, and none runs"),
        ([cassandra(0)], set(), "--agent is for Cassandra, and none runs"),
        ([cassandra(100)], {200}, "none runs"),
        ([cassandra(100)], set(), "process 100 has ended"),
    ],
)
def test_an_agent_needs_a_cassandra_that_runs(
    servers: list[Server], pids: set[int], why: str
) -> None:
    with pytest.raises(QjouleError, match=why):
        put_agents(servers, nobody_is_reached, pids)


@pytest.mark.parametrize(
    ("uids", "of_root"),
    [("5 5 5 5", False), ("0 5 5 5", True), ("5 5 0 5", True), ("5 5 5 0", True)],
)
def test_who_a_jvm_is(uids: str, of_root: bool) -> None:
    status = f"Pid:\t7\nUid:\t{uids}\nGid:\t6 8 6 6\nNSpid:\t7\t3\t1\n"
    assert identity_of(7, status) == Identity(5, 8, 1, of_root)
    for damaged in ("", "Pid:\t7\nUid:\t0\n", "Pid:\t7\nUid:\tx y\nGid:\t0 0\n"):
        with pytest.raises(CannotAttach, match="has ended"):
            identity_of(7, damaged)


@pytest.mark.parametrize(("caught", "handled"), [("4", True), ("3", False), ("8", False)])
def test_a_signal_that_would_end_a_jvm(caught: str, handled: bool) -> None:
    assert handles_quit(f"Pid:\t7\nSigCgt:\t000000000000000{caught}\n") == handled
    assert not handles_quit("")
