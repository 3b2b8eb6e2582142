"""Has a running HotSpot JVM load an agent: the server side of its Attach API.

A JVM listens on a unix socket in its /tmp once it finds a file `.attach_pidPID` there when it gets
SIGQUIT (src/hotspot/os/linux/attachListener_linux.cpp; src/jdk.attach/linux/classes/sun/tools/
attach/VirtualMachineImpl.java of the JDK). It believes root and its own user. All of this is done
as that user, in its mount namespace, so nothing that it puts in our way is followed with more
rights than it has.

The socket stays, for whoever attaches next, until the JVM exits; one that is killed leaves it.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from qjoule.errors import QjouleError
from qjoule.servers.access import ProcFile, Unreadable
from qjoule.servers.candidate import Candidate
from qjoule.servers.direct_access import DirectAccess
from qjoule.servers.in_root import open_directory
from qjoule.servers.procfs import Process
from qjoule.shapes.safe_text import sanitise

ATTACH_SECONDS = 30.0  #: a JVM in a long garbage collection answers after it
_POLL_SECONDS = 0.05
_REPLY_BYTES_MAX = 4096
_DISABLED = "+DisableAttachMechanism"
_OPTION_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")


class CannotAttach(QjouleError):
    """The JVM cannot be asked, or refused; one line that says what to do."""


@dataclass(frozen=True)
class Identity:
    """Who a process is: effective user and group, and its number in its own pid namespace."""

    uid: int
    gid: int
    pid: int


def identity_of(process: Process) -> Identity:
    """
    Raises:
        CannotAttach: it has ended.
    """
    status = _status(process)
    fields = {
        name: values.split() for name, _, values in (s.partition(":") for s in status.splitlines())
    }
    try:
        pid = int(fields.get("NSpid", fields["Pid"])[-1])
        return Identity(int(fields["Uid"][1]), int(fields["Gid"][1]), pid)
    except (KeyError, IndexError, ValueError):
        raise CannotAttach(f"process {process.pid} has ended") from None


@contextmanager
def acting_as(identity: Identity) -> Iterator[None]:
    """What this process does to files and processes is done as that user; needs root."""
    before = os.geteuid(), os.getegid()
    try:
        os.setegid(identity.gid)
        os.seteuid(identity.uid)
        yield
    except PermissionError as error:
        if os.geteuid() != identity.uid:
            raise CannotAttach(f"cannot become user {identity.uid}: run it with sudo") from error
        raise
    finally:
        os.seteuid(before[0])
        os.setegid(before[1])


def load_agent(process: Process, identity: Identity, jar: str, argument: str) -> None:
    """Has the JVM load a Java agent and run its `agentmain`.

    Args:
        jar: as the JVM names it; readable by its user.

    Raises:
        CannotAttach: it cannot be asked, or says that it could not.
    """
    reply = command(process, identity, "load", "instrument", "false", f"{jar}={argument}")
    # The operation's own result, then the agent's: 100 no such class, 101 or 102 it threw.
    said = re.match(r"0\n(?:return code: )?(-?\d+)?", reply)
    if said is None or said[1] not in (None, "0"):
        words = sanitise(" ".join(reply.split()))[:200] or "nothing"
        raise CannotAttach(f"the JVM of process {process.pid} could not load the agent: {words}")


def command(process: Process, identity: Identity, *words: str) -> str:
    """Sends one command with up to three arguments; returns the reply, cut at 4 KiB.

    Raises:
        CannotAttach: no JVM answers.
    """
    try:
        tmp = open_directory(process.root, "/tmp")
    except Unreadable as error:
        raise CannotAttach(f"process {process.pid}: {error}") from None
    try:
        with acting_as(identity):
            connection = _connected(process, identity, tmp)
        with connection:
            connection.settimeout(ATTACH_SECONDS)
            padded = ["1", *words, "", "", ""][:5]  # the protocol's version, always three arguments
            connection.sendall(b"".join(os.fsencode(word) + b"\0" for word in padded))
            return _reply(connection)
    except OSError as error:
        what = error.strerror or "it does not answer"
        raise CannotAttach(f"cannot talk to the JVM of process {process.pid}: {what}") from None
    finally:
        os.close(tmp)


def _reply(connection: socket.socket) -> str:
    reply = b""
    while len(reply) < _REPLY_BYTES_MAX and (part := connection.recv(_REPLY_BYTES_MAX)):
        reply += part
    return reply[:_REPLY_BYTES_MAX].decode("utf-8", "replace")


def _connected(process: Process, identity: Identity, tmp: int) -> socket.socket:
    name = f".java_pid{identity.pid}"
    if connection := _connect(tmp, name):
        return connection
    _check_listens(process)
    trigger = f".attach_pid{identity.pid}"
    with suppress(FileExistsError):
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        os.close(os.open(trigger, flags, 0o600, dir_fd=tmp))
    try:
        os.kill(process.pid, signal.SIGQUIT)
        deadline = time.monotonic() + ATTACH_SECONDS
        while time.monotonic() < deadline:
            if connection := _connect(tmp, name):
                return connection
            time.sleep(_POLL_SECONDS)
    finally:
        with suppress(OSError):
            os.unlink(trigger, dir_fd=tmp)
    raise CannotAttach(
        f"the JVM of process {process.pid} does not answer within {ATTACH_SECONDS:.0f} s: "
        f"it hangs, or was started with -XX:{_DISABLED}"
    )


def _connect(tmp: int, name: str) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        connection.settimeout(ATTACH_SECONDS)
        # A path of at most 107 bytes, whatever the JVM's root is called.
        connection.connect(f"/proc/self/fd/{tmp}/{name}")
    except (FileNotFoundError, ConnectionRefusedError):  # refused: left by one that has ended
        connection.close()
        return None
    except BaseException:
        connection.close()
        raise
    return connection


def _check_listens(process: Process) -> None:
    """A signal that nobody handles would end the process: better not to send it."""
    candidate = Candidate(DirectAccess(process.directory), process.exe_name)
    options = list(candidate.arguments)
    for name in _OPTION_VARIABLES:
        options += candidate.environment.get(name, "").split()
    if any(option == f"-XX:{_DISABLED}" for option in options):
        raise CannotAttach(
            f"the JVM of process {process.pid} runs with -XX:{_DISABLED}: "
            "restart it without, or leave out --agent"
        )
    caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", _status(process), re.MULTILINE)
    if caught is None or not int(caught[1], 16) >> (signal.SIGQUIT - 1) & 1:
        raise CannotAttach(
            f"process {process.pid} does not handle SIGQUIT (-Xrs?), so its JVM cannot be asked "
            "to load an agent: leave out --agent"
        )


def _status(process: Process) -> str:
    return DirectAccess(process.directory).proc(ProcFile.STATUS).decode(errors="replace")
