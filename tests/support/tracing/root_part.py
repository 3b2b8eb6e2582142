# SPDX-License-Identifier: Apache-2.0
"""`qjoule-root` whose command is the test: the test makes the command's or the tracer's
requests.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from qjoule.root_part.client import installed
from qjoule.root_part.protocol import Kind, Opened, What, ask
from qjoule.servers.attach_plan import AttachPlan, PlannedServer

ROOT_PART = Path(sys.executable).parent / "qjoule-root"
PYTHON = "/usr/bin/python3"  #: that of the virtual environment may be readable only by root
_END_S = 60

#: What the root part runs without rights: passes its connection to the test, and waits.
_RELAY = """
import os, socket
test = socket.socket(fileno=0)
number = int(os.environ["QJOULE_ROOT_PART"])
socket.send_fds(test, [b"."], [number])
os.close(number)
test.recv(1)
"""


class NotStarted(Exception):
    """The root part ended before it had a command."""


class RootPart:
    """A running root part."""

    def __init__(self, process: subprocess.Popen[bytes], connection: socket.socket) -> None:
        self.process = process
        self.pid = process.pid
        self.connection = connection

    def tracer(self) -> socket.socket:
        """The socket for the tracer's requests."""
        return socket.socket(fileno=ask(self.connection, Kind.TRACER).fd)

    def executable(self, pid: int) -> Opened:
        """What an examiner of this process learns about its executable, with a handle."""
        with self.bound(pid) as bound:
            return _request_file(bound, What.EXE)

    def mapped(self, pid: int, first: int, end: int) -> Opened:
        """The same for the file that is mapped there."""
        with self.bound(pid) as bound:
            return _request_file(bound, What.MAPPED, offset=first, size=end - first)

    def installed(self, path: Path) -> Opened:
        reply = installed(self.connection, path)
        os.close(reply.fd)
        return reply.file

    def bound(self, pid: int) -> socket.socket:
        """The socket of an examiner of this process."""
        return bound_socket(self.connection, pid)

    @property
    def descriptors(self) -> int:
        """The number of its descriptors, once it has finished all earlier requests."""
        ask(self.connection, Kind.EXE, pid=os.getpid())
        return len(os.listdir(f"/proc/{self.pid}/fd"))  # noqa: PTH208

    @property
    def children(self) -> list[str]:
        return Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()


def bound_socket(connection: socket.socket, pid: int) -> socket.socket:
    """A socket of the root part that opens files of one process."""
    return socket.socket(fileno=ask(connection, Kind.BIND, pid=pid).fd)


def _request_file(bound: socket.socket, kind: What, offset: int = 0, size: int = 0) -> Opened:
    reply = ask(bound, Kind.OPEN, number=kind, offset=offset, size=size)
    os.close(reply.fd)
    return reply.file


@contextmanager
def root_part(
    *command: str,
    program: Path = ROOT_PART,
    python: str = PYTHON,
    environment: Mapping[str, str] | None = None,
    stderr: int | None = None,
) -> Iterator[RootPart]:
    """Starts a root part. When the block ends, it has ended and detached what was attached."""
    own_end, root_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with tempfile.TemporaryDirectory() as directory, own_end:
        relay = Path(directory) / "relay.py"
        relay.write_text(_RELAY)
        relay.parent.chmod(0o755)
        relay.chmod(0o644)
        process = subprocess.Popen(
            [str(program), python, "-I", str(relay), *(command or ("record",))],
            stdin=root_end.fileno(),
            stderr=stderr,
            env={**os.environ, **(environment or {})},
        )
        root_end.close()
        try:
            _, fds, _, _ = socket.recv_fds(own_end, 1, 1)
            if not fds:
                raise NotStarted("the root part did not start its command")
            with socket.socket(fileno=fds[0]) as connection:
                yield RootPart(process, connection)
            own_end.shutdown(socket.SHUT_RDWR)
            process.wait(_END_S)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def with_handles(root: RootPart, plan: AttachPlan) -> AttachPlan:
    """The plan with the root part's handles of the files to probe."""
    return AttachPlan(tuple(_with_handles(root, planned) for planned in plan.servers))


def _with_handles(root: RootPart, planned: PlannedServer) -> PlannedServer:
    if not planned.traced or not planned.probes or planned.library_handle:
        return planned
    server = planned.server
    if planned.library:
        first, _, end = Path(planned.library).name.partition("-")  # a file of /proc/PID/map_files
        file = root.mapped(server.tgids[0], int(first, 16), int(end, 16))
        return replace(planned, library_handle=file.handle)
    file = root.executable(server.tgids[0]) if server.running else root.installed(server.exe_path)
    return replace(planned, server=replace(server, handle=file.handle))


def holds_nothing(pid: int) -> None:
    """Asserts that the process can do nothing that its user could not, for every thread: users,
    groups, capabilities, no way back to them, a filter.
    """
    threads = list(Path(f"/proc/{pid}/task").iterdir())
    assert threads
    for thread in threads:
        lines = (thread / "status").read_text().splitlines()
        status = dict(line.split(":", 1) for line in lines)
        assert "0" not in status["Uid"].split(), "real, effective, saved, file system"
        assert "0" not in status["Gid"].split()
        assert not status["Groups"].split()
        for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(status[kind], 16) == 0, (thread, kind)
        assert status["NoNewPrivs"].strip() == "1", thread
        assert status["Seccomp"].strip() == "2", thread


# ---- a command that the root part runs without rights: this file, which executes its input -------

_PREAMBLE = """
from qjoule.root_part.client import root_part
from qjoule.root_part.protocol import Kind, Refused, ask
import errno, os, sys
from pathlib import Path
part = root_part()
def refused(kind, **options):
    try:
        ask(part.connection, kind, **options)
    except Refused as error:
        return errno.errorcode[error.errno]
    return "granted"
"""


def run_code(
    code: str,
    *command: str,
    directory: Path | None = None,
    before: tuple[str, ...] = (),
    status: int = 0,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Runs `code`, which can use `part` and `ask`, without rights, with the command line `command`;
    asserts its exit code.
    """
    done = subprocess.run(
        [*before, ROOT_PART, sys.executable, "-I", __file__, *command],
        input=_PREAMBLE + code,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=directory,
        env={**os.environ, **environment},
    )
    assert done.returncode == status, done.stderr
    return done


if __name__ == "__main__":
    exec(sys.stdin.read(), {"__name__": "__main__"})
