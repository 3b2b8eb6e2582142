# SPDX-License-Identifier: Apache-2.0
"""The process that loads the agent: its rights, and fake or malicious JVMs."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qjoule.servers.cassandra import agent
from qjoule.servers.cassandra.agent import agent_files
from qjoule.servers.direct_access import processes
from qjoule.servers.jvm.agent_loader import LIBRARY
from qjoule.servers.jvm.attach import CannotAttach
from qjoule.servers.jvm.process import identity_of, status_of
from qjoule.servers.processes import Process
from qjoule_studies.servers.process import server_directory
from tracing import fake_jvm
from tracing.agents import AgentsByRootPart, StartLoader, agents_by_root_part
from waiting import until

pytestmark = [pytest.mark.beside, pytest.mark.root]

UID, GID = 54321, 54322


@dataclass
class FakeJvm:
    root: Path
    process: Process
    child: subprocess.Popen[str]
    agents: AgentsByRootPart

    def line(self) -> str:
        assert self.child.stdout is not None
        return self.child.stdout.readline().rstrip("\n")

    @property
    def left_behind(self) -> list[str]:
        return [path.name for path in (self.root / "tmp").iterdir() if "java_pid" not in path.name]

    @property
    def socket(self) -> Path:
        return self.root / "tmp" / f".java_pid{self.process.pid}"


def process_of(child: subprocess.Popen[Any]) -> Process:
    (only,) = (process for process in processes(Path("/proc")) if process.pid == child.pid)
    return only


@contextmanager
def fake(
    root: Path, behaviour: str, uid: int = UID, python: Path | None = None
) -> Iterator[FakeJvm]:
    """`python`: the interpreter for the loader, instead of this one."""
    command = [sys.executable, fake_jvm.__file__, str(root), str(uid), str(GID), behaviour]
    pipe = subprocess.PIPE
    with (
        agents_by_root_part(python) as agents,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as child,
    ):
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            yield FakeJvm(root, process_of(child), child, agents)
            assert child.poll() is None
        finally:
            child.kill()


@pytest.fixture
def root() -> Iterator[Path]:
    """A root directory with a /tmp, and a directory of the JVM's user that must not change."""
    with server_directory() as parent:
        root = parent / "root"
        (root / "tmp").mkdir(parents=True)
        (root / "victim").mkdir()
        for name in fake_jvm.FILES:
            (root / "victim" / name).write_text("ok")
        for path in (root / "victim", *(root / "victim").iterdir()):
            os.chown(path, UID, GID)
        root.chmod(0o755)
        (root / "tmp").chmod(0o1777)
        yield root


def refused(jvm: FakeJvm, reason: str, start_loader: StartLoader | None = None) -> str:
    with pytest.raises(CannotAttach) as error:
        jvm.agents.put(jvm.process, start_loader=start_loader)
    message = str(error.value)
    assert reason in message
    assert message.isprintable()
    assert len(message) < 1200
    assert jvm.child.poll() is None
    victim = jvm.root / "victim"
    assert {path.name: path.read_text() for path in victim.iterdir()} == dict.fromkeys(
        fake_jvm.FILES, "ok"
    )
    until(lambda: not jvm.agents.loaders())
    return message


def proc_status(pid: int) -> dict[str, list[str]]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: values.split() for name, _, values in (line.partition(":") for line in lines)}


@contextmanager
def loading(jvm: FakeJvm, seconds: float = 30.0) -> Iterator[None]:
    """While a loader is working."""
    with jvm.agents.reached(jvm.process) as reached:
        identity = identity_of(reached.pid, status_of(reached))
        with reached.loader(identity, client_tags=False, may_signal=True, seconds=seconds):
            yield


@pytest.mark.parametrize("client_tags", [False, True])
def test_an_agent_is_put_and_taken_out(root: Path, client_tags: bool) -> None:
    with fake(root, "good") as jvm:
        attached = jvm.agents.put(jvm.process, client_tags=client_tags)
        try:
            assert attached.handle
            assert jvm.agents.library(attached).read_bytes() == agent_files()[-1].read_bytes()
            assert jvm.left_behind == []
            until(lambda: not jvm.agents.loaders())
            assert jvm.line() == "asked"
        finally:
            attached.close()
        assert jvm.line() == ("released, tags" if client_tags else "released")


def test_the_loader_has_the_user_s_rights_and_no_others(root: Path, tmp_path: Path) -> None:
    """Other processes of that user cannot read its /proc entries either."""
    peep = [sys.executable, "-c", "import os, sys; os.listdir(sys.argv[1])"]
    account: dict[str, Any] = {"user": UID, "group": GID, "extra_groups": []}
    secret = tmp_path / "secret"
    secret.touch(0o600)
    with secret.open("rb") as stream, fake(root, "silent") as jvm:
        os.set_inheritable(stream.fileno(), True)
        with loading(jvm):
            assert jvm.line() == "asked"
            (loader,) = jvm.agents.loaders()
            status = proc_status(loader.pid)
            links = [path.readlink() for path in Path(f"/proc/{loader.pid}/fd").iterdir()]
            environment = Path(f"/proc/{loader.pid}/environ").read_bytes()
            standard = [Path(f"/proc/{loader.pid}/fd/{number}").readlink() for number in range(3)]
            peeped = subprocess.run(
                [*peep, f"/proc/{loader.pid}/fd"],
                **account,
                capture_output=True,
                text=True,
                check=False,
            )
            assert "PermissionError" in peeped.stderr
            assert os.getsid(loader.pid) == loader.pid
            assert Path(f"/proc/{loader.pid}/cwd").readlink() == Path("/")
        assert status["Uid"] == [str(UID)] * 4
        assert status["Gid"] == [str(GID)] * 4
        assert status["Groups"] == []
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(status[name][0], 16) == 0
        assert status["NoNewPrivs"] == ["1"]
        assert status["Umask"] == ["0077"]
        assert status["SigBlk"] == ["0" * 16]
        assert standard == [Path(os.devnull)] * 3
        assert secret not in links
        assert environment == b""
        # Nobody waits for its answer any more: it has ended and removed its files.
        until(lambda: not jvm.agents.loaders())
        assert jvm.left_behind == []


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ("flood", "could not load the agent: 000"),
        ("status-fifo", "its status is no regular file"),
        ("status-link", "it did not say why"),
        ("status-long", "xxxxxxxx"),
        ("silent", "does not answer within 2 s"),
        ("moved", "it did not say why"),  # its directory is replaced by a link
        ("directories", "its status is no regular file"),
    ],
)
def test_answers_that_no_jvm_with_the_agent_gives(
    root: Path, monkeypatch: pytest.MonkeyPatch, behaviour: str, reason: str
) -> None:
    monkeypatch.setattr(agent, "ATTACH_SECONDS", 2.0)
    with fake(root, behaviour) as jvm:
        refused(jvm, reason)
        if behaviour == "moved":
            assert list((root / "tmp" / "moved").iterdir()) == []
        elif behaviour != "directories":
            assert jvm.left_behind == []


def test_a_library_with_other_content_is_not_probed(root: Path) -> None:
    with fake(root, "changed") as jvm:
        refused(jvm, "is not qjoule's")
        assert (jvm.line(), jvm.line()) == ("asked", "released")


def test_what_is_no_socket_of_the_jvm(root: Path) -> None:
    with fake(root, "good") as jvm, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(jvm.socket))
        listening.listen()
        listening.setblocking(False)
        refused(jvm, "belongs to user 0, not the JVM's")
        with pytest.raises(BlockingIOError):
            listening.accept()  # nobody has come


def test_a_jvm_of_root(root: Path) -> None:
    with fake(root, "good", uid=0) as jvm:
        refused(jvm, "runs as root")
        assert list((root / "tmp").iterdir()) == []


def test_a_process_that_executes_another_program_by_now(root: Path) -> None:
    with fake(root, "good") as jvm:
        other = replace(jvm.process, exe_id=(1, 2))
        with pytest.raises(CannotAttach, match="executes another program"):
            jvm.agents.put(other)
        assert list((root / "tmp").iterdir()) == []


Answer = Callable[[socket.socket, Path], None]


def _says(*messages: bytes, descriptor: str | None = None) -> Answer:
    def answer(loader: socket.socket, _library: Path) -> None:
        for word in messages:
            if descriptor is None:
                loader.send(word)
            else:
                with Path(descriptor).open("rb") as stream:
                    socket.send_fds(loader, [word], [stream.fileno()])

    return answer


def _claims_a_file_of_root(loader: socket.socket, library: Path) -> None:
    status = library.stat()
    read, write = os.pipe()
    message = f"ok {status.st_dev} {status.st_ino}".encode()
    socket.send_fds(loader, [message], [write])
    os.close(read)
    os.close(write)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (_says(), "ended without a word"),
        (_says(b"ok 1 2", descriptor=os.devnull), "no lease"),
        (_says(b"\xff\x1b[31m\n" * 1000), "[31m"),
        (_claims_a_file_of_root, "is not qjoule's"),
    ],
)
def test_a_loader_that_is_not_to_be_believed(
    root: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer, reason: str
) -> None:
    def receive(*arguments: Any) -> Any:
        received = socket.recv_fds(*arguments)
        # To close a file of a FUSE program may take for ever (fuse_flush()).
        assert all(stat.S_ISFIFO(os.fstat(descriptor).st_mode) for descriptor in received[1])
        return received

    names = {name: getattr(socket, name) for name in ("socket", "MSG_CMSG_CLOEXEC")}
    monkeypatch.setattr(agent, "socket", SimpleNamespace(**names, recv_fds=receive))
    library = root / LIBRARY
    library.write_bytes(agent_files()[-1].read_bytes())
    library.chmod(0o644)

    def start_loader() -> socket.socket:
        own_end, loader_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with loader_end:
            answer(loader_end, library)
        return own_end

    with fake(root, "mapping") as jvm:
        agent.marker_probes(agent_files()[-1])  # whose file stays open
        before = open_descriptors()
        refused(jvm, reason, start_loader)
        assert open_descriptors() == before


def open_descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}
