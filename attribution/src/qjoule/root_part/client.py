# SPDX-License-Identifier: Apache-2.0
"""The command's own socket to the root part, used until the tracer is attached. Without a root
part, as for a user who did not call sudo, `connection` is None."""

from __future__ import annotations

import errno
import functools
import mmap
import os
import pwd
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from ctypes import addressof, c_char
from pathlib import Path

from qjoule.errors import QjouleError, exit_code
from qjoule.process import hide
from qjoule.root_part.protocol import (
    Account,
    Kind,
    Opened,
    Refused,
    Reply,
    Sensors,
    What,
    ask,
)
from qjoule.root_part.reader_filter import keep_from_typing

_VARIABLE = "QJOULE_ROOT_PART"


class Started:
    """A process that the root part started. Its exit code can be read once."""

    def __init__(self, reply: Reply) -> None:
        self.pid = reply.pid
        self._ended = socket.socket(fileno=reply.fd)

    def exit_code(self, *, wait: bool) -> int | None:
        """Returns the exit code (128 plus the signal, as in shells), or None if it still runs."""
        try:
            status = self._ended.recv(4, 0 if wait else socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        self._ended.close()
        if not status:  # the root part has ended
            return 1
        return exit_code(os.waitstatus_to_exitcode(int.from_bytes(status, sys.byteorder)))


class Program:
    """The user's program, which runs beside the recording."""

    def __init__(self, started: Started, ended: Callable[[], None]) -> None:
        self.pid = started.pid
        self._code: int | None = 1
        self._started = started
        self._ended = ended
        self._thread = threading.Thread(target=self._wait, name="qjoule-child", daemon=True)
        self._thread.start()

    def exit_code(self) -> int | None:
        """Waits until the program ends, and returns its exit code."""
        self._thread.join()
        return self._code

    def _wait(self) -> None:
        with suppress(OSError):
            self._code = self._started.exit_code(wait=True)
        self._ended()


class RootPart:
    """The command's requests to the root part. For use by one thread at a time."""

    def __init__(self, connection: socket.socket | None) -> None:
        self.connection = connection
        self._tracer: socket.socket | None = None

    @property
    def process(self) -> int | None:
        """Returns the pid of the privileged process, as the command sees it, or None without
        one."""
        return None if self.connection is None else os.getppid()

    def need(self, doing: str) -> socket.socket:
        """Returns the connection. Raises `QjouleError`, which says that `doing` needs root."""
        if self.connection is None:
            raise QjouleError(f"{doing} needs root: run it again with sudo")
        return self.connection

    def directory(self, path: Path) -> int:
        """Makes a directory, which must be named on our command line. Returns a descriptor.

        The directory belongs to the calling user, and this process may write into it. When this
        process has ended, its files are given to the caller. An empty directory of the caller's is
        replaced. Raises `Refused`, with EEXIST if anything else exists at `path`.
        """
        text = os.fsencode(_as_spelled(path))
        return ask(self.need("this directory"), Kind.DIRECTORY, text=text).fd

    def sensors(self) -> Sensors | None:
        """Call it before the tracer starts: both use the same socket."""
        return None if self.connection is None else Sensors(self.tracer_socket())

    def tracer_socket(self) -> socket.socket:
        """Returns the tracer's socket to the root part, which exists once. Raises `Refused`."""
        if self._tracer is None:
            self._tracer = socket.socket(fileno=ask(self.need("tracing"), Kind.TRACER).fd)
        return self._tracer

    def tag_socket(self) -> socket.socket:
        """The listening socket that applications connect to. Raises `Refused`."""
        return socket.socket(fileno=ask(self.need("listening"), Kind.TAG_SOCKET).fd)

    def run(self, program: tuple[str, ...], ended: Callable[[], None]) -> Program:
        """Runs the program after `--` on our command line as the calling user.

        `ended` is called on another thread when the program has ended.

        Raises:
            QjouleError: the program cannot be run.
        """
        check_program(program)
        try:
            return Program(Started(ask(self.need("recording"), Kind.RUN)), ended)
        except Refused as error:
            raise QjouleError(f"cannot start {program[0]}: {error}") from None

    def loader(
        self,
        pid: int,
        own_pid: int,
        *,
        client_tags: bool = False,
        may_signal: bool = True,
        seconds: int = 30,
    ) -> socket.socket:
        """Starts the agent's loader as the JVM's user, and returns the socket of its answers.

        Args:
            own_pid: the JVM's pid in its own pid namespace.
            client_tags, may_signal, seconds: see `servers.jvm.agent_loader`.

        Raises:
            Refused: the JVM has ended, or belongs to root.
        """
        connection = self.need("an agent")
        arguments = [
            f"{pid} {own_pid} --seconds={seconds}",
            *(["--client-tags"] if client_tags else []),
            *([] if may_signal else ["--no-signal"]),
        ]
        text = " ".join(arguments).encode()
        reply = ask(connection, Kind.AS, pid=pid, text=text)
        return socket.socket(fileno=reply.fd)

    def given(self, path: Path) -> tuple[int, Opened]:
        """Returns a descriptor and the identity of a file that our command line names or that is in
        the caller's memory (`Kind.GIVEN`). Raises `Refused`."""
        text = os.fsencode(_as_spelled(path))
        reply = ask(self.need("this file"), Kind.GIVEN, text=text)
        return reply.fd, reply.file

    def accounts(self) -> tuple[tuple[Account, ...], int]:
        """Returns run counts of our BPF programs by type, and a descriptor. While that is open, the
        kernel accounts for all BPF programs. Raises `QjouleError` if the root part may not do it.
        """
        try:
            reply = ask(self.need("accounts"), Kind.ACCOUNTS)
        except Refused as error:
            raise QjouleError(f"{error} (the root part needs CAP_SYS_ADMIN)") from None
        return reply.accounts(), reply.fd

    def flight_recorder(self) -> Started:
        """Starts the program after `--` on the agent's command line. Raises `Refused`, with EINVAL
        if it already runs."""
        return Started(ask(self.need("a recording"), Kind.RUN))

    def publish(self, path: Path, memory: int) -> None:
        """Atomically replaces `path` by the content of a memfd. If that is empty, only checks
        whether `path` could be replaced. Raises `Refused`."""
        text = os.fsencode(_as_spelled(path))
        size = os.fstat(memory).st_size
        ask(self.need("calibrating"), Kind.PUBLISH, text=text, size=size, fd=memory)


def installed(connection: socket.socket, path: Path) -> Reply:
    """Opens an executable of root's that no process need run: this process maps the file, and asks
    the root part for its own mapping.

    Raises:
        Refused: `path` is not such an executable, or cannot be opened.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            mapped = mmap.mmap(descriptor, 1, access=mmap.ACCESS_COPY)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:  # ValueError: the file is empty
        raise Refused(getattr(error, "errno", errno.EINVAL)) from None
    with mapped, socket.socket(fileno=ask(connection, Kind.BIND, pid=os.getpid()).fd) as bound:
        at = addressof(c_char.from_buffer(mapped))
        return ask(bound, Kind.OPEN, number=What.MAPPED, offset=at, size=mmap.PAGESIZE)


@functools.cache
def root_part() -> RootPart:
    """The root part of this process, connected at the first call.

    From then on, other processes of our user may not inspect this process, and this process cannot
    type into the terminal.
    """
    number = os.environ.pop(_VARIABLE, None)
    if number is None:
        return RootPart(None)
    connection = socket.socket(fileno=int(number))
    connection.set_inheritable(False)
    try:
        hide()
    except OSError as error:
        raise QjouleError(f"cannot hide from other processes: {error.strerror}") from None
    keep_from_typing()
    os.environ["HOME"] = home_of(os.getuid())
    return RootPart(connection)


def check_program(program: tuple[str, ...]) -> None:
    """Raises QjouleError if `program` is not everything after `--` on our command line."""
    arguments = sys.argv[sys.argv.index("--") + 1 :] if "--" in sys.argv else []
    if program and list(program) != arguments:
        raise QjouleError(f"put '--' and then the command last: -- {' '.join(program)}")


def read_given(path: Path, most: int) -> bytes:
    """Returns at most `most` bytes of a file. Without permission, asks `RootPart.given` to open it.
    Raises `OSError`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:
        if root_part().connection is None:
            raise
        try:
            descriptor, _ = root_part().given(path)
        except QjouleError:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES)) from None
    with os.fdopen(descriptor, "rb") as file:
        return file.read(most)


def refusal_message(error: Refused) -> str:
    """Returns a refusal as a message."""
    if error.errno == errno.EPERM:
        return "the root part does not allow it"
    return str(error)


def home_of(uid: int) -> str:
    """Returns a user's home directory, or / without an account."""
    try:
        return pwd.getpwuid(uid).pw_dir
    except KeyError:
        return "/"


def us() -> str:
    """Returns the name of this process's user, who may differ from the caller."""
    return user_name(os.geteuid())


def user_name(uid: int) -> str:
    """Returns a user's name, or the number without an account."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _as_spelled(path: Path) -> str:
    """Returns the path as spelled on our command line: the root part compares the arguments."""
    for word in sys.argv:
        for text in (word, word.partition("=")[2], word[2:]):
            if text and Path(text) == path:
                return text
    return str(path)
