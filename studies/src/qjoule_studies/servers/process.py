# SPDX-License-Identifier: Apache-2.0
"""A database server as a child process in a temporary directory, ended whatever happens.

Used by `qjoule_studies.servers.start`, and by the tests for the servers of theirs.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from qjoule.api import QjouleError
from qjoule_studies.servers.prerequisites import Unavailable
from qjoule_studies.workload import Target, Value

PREFIX = "qjoule-server-"
START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 60.0
_CLIENT_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


#: The longest path of a Unix socket (unix(7)), less the socket's name in its directory.
_DIRECTORY_MAX = 80


@dataclass
class DatabaseServer:
    """A started server. `stop`, `kill` and `start` take it down and up again."""

    name: str
    directory: Path
    argv: list[str]
    port: int
    socket: Path
    open_connection: Callable[[DatabaseServer, bool, dict[str, Any]], Any]
    identity: tuple[str, ...] = ()
    stop_signal: int = signal.SIGTERM
    #: A JVM takes seconds to end by itself, and leaves nothing outside its directory if killed.
    may_be_killed: bool = False
    process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None, f"{self.name} is not running"
        return self.process.pid

    @property
    def tgids(self) -> tuple[int, ...]:
        """The server's processes, the main one first."""
        with suppress(psutil.NoSuchProcess):
            children = psutil.Process(self.pid).children(recursive=True)
            return (self.pid, *sorted(child.pid for child in children))
        return (self.pid,)

    @property
    def executable(self) -> Path:
        return Path(f"/proc/{self.pid}/exe").readlink()

    @property
    def log(self) -> str:
        return (self.directory / "server.log").read_text(errors="replace")

    def connect(self, *, tcp: bool = False, **arguments: Any) -> Any:
        """A new connection, over the unix socket unless `tcp`; further arguments to the driver."""
        return self.open_connection(self, tcp, arguments)

    def start(self) -> None:
        """Start, and return when a client can connect."""
        assert self.process is None, f"{self.name} is running"
        with (self.directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*with_parent(*self.identity), *self.argv],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                self.connect().close()
                return
            except Exception as error:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.kill()
                    raise QjouleError(f"{self.name} did not start: {self.log[-2000:]}") from error
            time.sleep(0.02)

    def stop(self) -> None:
        """Ask the server to end, and insist when it takes too long."""
        if self.process is None:
            return
        self.process.send_signal(self.stop_signal)
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
        else:
            remove_attach_socket(self.pid)
            self.process = None

    def kill(self) -> None:
        """kill -9 the server and every process of its session."""
        if self.process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        # PostgreSQL's children lead their own sessions and follow the postmaster by themselves.
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while processes_in(self.directory) and time.monotonic() < deadline:
            time.sleep(0.01)
        for pid in processes_in(self.directory):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        remove_attach_socket(self.pid)
        self.process = None


#: Every server that this process has started, for a check of what is left of them.
started: list[DatabaseServer] = []


@contextmanager
def running(server: DatabaseServer) -> Iterator[DatabaseServer]:
    """Start the server, and end it and its directory on the way out."""
    started.append(server)
    try:
        server.start()
        yield server
    finally:
        try:
            if not server.may_be_killed:
                server.stop()
        finally:
            server.kill()
            shutil.rmtree(server.directory, ignore_errors=True)


@contextmanager
def server_directory(below: Path | None = None) -> Iterator[Path]:
    """A short path (a unix socket's has at most 107 bytes) that other users may traverse.

    Args:
        below: where to make it; a temporary directory of the system unless given.
    """
    directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=below or _place()))
    directory.chmod(0o711)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def readable(installed: Path, directory: Path) -> Path:
    """This folder of programs, or a copy in `directory` where not everybody may read it."""
    if all(
        each.stat().st_mode & 0o005 == 0o005 for each in (installed, *installed.resolve().parents)
    ):
        return installed
    copy = shutil.copytree(installed, directory / "installed", symlinks=True)
    for path in (copy, *copy.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755)
    return copy


def _place() -> str:
    """The system's temporary directory; `/tmp` if that is too long, or is one user's own."""
    place = Path(tempfile.gettempdir()).resolve()
    reachable = all(each.stat().st_mode & stat.S_IXOTH for each in (place, *place.parents))
    return str(place) if reachable and len(os.fsencode(place)) < _DIRECTORY_MAX else "/tmp"


def with_parent(*identity: str) -> list[str]:
    """A command prefix: the server ends when this process does, even by kill -9.

    More exactly, when the thread that started it does (prctl(2), PR_SET_PDEATHSIG): start servers
    from a thread that stays. `identity` are setpriv's options for another user: a change of user
    clears the death signal, so setpriv sets it afterwards.
    """
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise Unavailable("setpriv is not installed (package util-linux)")
    return [setpriv, *identity, "--pdeathsig=TERM", "--"]


def free_port() -> int:
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Free ports below those that the kernel gives to clients.

    Otherwise a client may hold the port when the server binds it, or binds it again after a
    restart: while the server is down, and for a minute after the client has closed.
    """
    first_of_clients = int(_CLIENT_PORTS.read_text().split()[0])
    ports: set[int] = set()
    while len(ports) < count:
        port = random.randrange(10_000, max(first_of_clients, 20_000))
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            ports.add(port)
    return list(ports)


def remove_attach_socket(pid: int) -> None:
    """Removes the attach socket of a JVM, which stays if the JVM did not exit by itself.

    attachListener_linux.cpp: `listener_cleanup()` is called at exit. The process has ended.
    """
    Path(f"/tmp/.java_pid{pid}").unlink(missing_ok=True)


def processes_in(directory: Path) -> list[int]:
    """Live processes that work in a directory, as every server does in its data directory."""
    inside = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if Path(process.cwd()).is_relative_to(directory):
                inside.append(process.pid)
    return inside


def run_quietly(argv: list[str], cwd: Path) -> None:
    """Run a setup command; its output is shown only when it fails.

    Its temporary files go to `cwd`: ours may be closed to the user that it runs as.
    """
    done = subprocess.run(
        argv,
        cwd=cwd,
        env={**os.environ, "TMPDIR": str(cwd)},
        capture_output=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        output = (done.stdout + done.stderr).decode(errors="replace")
        raise QjouleError(f"{argv[0]} failed ({done.returncode}): {output[-2000:]}")


def leaks() -> list[str]:
    """Processes and directories of servers that were started and should be gone."""
    left = []
    for server in started:
        left += [f"{server.name}: process {pid}" for pid in processes_in(server.directory)]
        if server.directory.exists():
            left.append(f"{server.name}: directory {server.directory}")
    return left


Settings = Mapping[str, Value]


def target(flavour: str, server: DatabaseServer, user: str = "", password: str = "") -> Target:
    """The address of a server that was started."""
    socket = str(server.socket) if server.socket.exists() else ""
    return Target(
        flavour, server.pid, port=server.port, socket=socket, user=user, password=password
    )


def options(settings: Settings, true: str, false: str) -> list[str]:
    """Settings as options of a command line."""
    return [f"--{name}={text(value, true, false)}" for name, value in settings.items()]


def text(value: Value, true: str, false: str) -> str:
    """A setting's value, with the server's words for true and false."""
    if isinstance(value, bool):
        return true if value else false
    return str(value)
