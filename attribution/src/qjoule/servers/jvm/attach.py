# SPDX-License-Identifier: Apache-2.0
"""Makes a running HotSpot JVM load an agent: the client side of its Attach API.

A JVM starts to listen on a unix socket in its /tmp if it finds a file `.attach_pidPID` there when
it gets SIGQUIT (src/hotspot/os/linux/attachListener_linux.cpp;
src/jdk.attach/linux/classes/sun/tools/ attach/VirtualMachineImpl.java of the JDK). It accepts root
and its own user.

Called by `qjoule.servers.jvm.agent_loader`, which runs as the JVM's user. That user controls the
directory, so names in it are never followed out of it: outside the JVM's root the same user id may
have rights that the JVM does not have.

The socket stays until the JVM exits, for later attaching. A killed JVM leaves it behind.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import time
from contextlib import suppress
from dataclasses import dataclass

from qjoule.errors import QjouleError
from qjoule.servers.access import Unreadable
from qjoule.servers.rootfs_reader import open_directory_below

DISABLED = "+DisableAttachMechanism"
_POLL_SECONDS = 0.05
_REPLY_BYTES_MAX = 4096
_SHOWN_CHARACTERS = 200


class CannotAttach(QjouleError):
    """The JVM cannot be attached to, or refused; one line with what to do about it."""


@dataclass(frozen=True)
class Jvm:
    """A JVM, with what its caller opened of it."""

    pid: int  #: for messages
    own_pid: int  #: its pid in its own pid namespace
    root: int  #: descriptor of its root directory
    handle: int  #: pidfd, or descriptor of its directory in /proc
    may_signal: bool  #: it handles SIGQUIT, which otherwise ends a process
    seconds: float  #: its time to listen, load the agent and answer


def load_agent(jvm: Jvm, jar: str, argument: str) -> None:
    """Makes the JVM load a Java agent and run its `agentmain`.

    Args:
        jar: path as the JVM sees it; readable by its user.

    Raises:
        CannotAttach: the JVM cannot be attached to, or reports a failure.
    """
    reply = command(jvm, "load", "instrument", "false", f"{jar}={argument}")
    # First the operation's own result, then the agent's: 100 no such class, 101 or 102 it threw.
    match = re.match(r"0\n(?:return code: )?(-?\d{1,9})?", reply)
    if match is None or match[1] not in (None, "0"):
        shown = " ".join(reply.split())[:_SHOWN_CHARACTERS] or "nothing"
        raise CannotAttach(f"the JVM of process {jvm.pid} could not load the agent: {shown}")


def command(jvm: Jvm, *arguments: str) -> str:
    """Sends one command with up to three arguments; returns the reply, cut at 4 KiB.

    Raises:
        CannotAttach: no JVM answers in time.
    """
    deadline = time.monotonic() + jvm.seconds
    try:
        tmp = open_directory_below(jvm.root, "/tmp")
    except Unreadable as error:
        raise CannotAttach(f"process {jvm.pid}: {error}") from None
    try:
        with _connected(jvm, tmp, deadline) as connection:
            # the protocol's version, the command, and exactly three arguments
            padded = ["1", *arguments, "", "", ""][:5]
            connection.settimeout(_seconds_left(deadline))
            connection.sendall(b"".join(os.fsencode(word) + b"\0" for word in padded))
            return _reply(connection, deadline)
    except TimeoutError:
        raise CannotAttach(
            f"the JVM of process {jvm.pid} does not answer within {jvm.seconds:.0f} s: "
            f"it hangs, or was started with -XX:{DISABLED}"
        ) from None
    except OSError as error:
        what = f"cannot talk to the JVM of process {jvm.pid}: {error.strerror}"
        raise CannotAttach(what) from None
    finally:
        os.close(tmp)


def _seconds_left(deadline: float) -> float:
    """Returns the seconds until then; always above 0."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds


def _reply(connection: socket.socket, deadline: float) -> str:
    reply = b""
    while len(reply) < _REPLY_BYTES_MAX:
        connection.settimeout(_seconds_left(deadline))
        part = connection.recv(_REPLY_BYTES_MAX - len(reply))
        if not part:
            break
        reply += part
    return reply.decode("utf-8", "replace")


def _connected(jvm: Jvm, tmp: int, deadline: float) -> socket.socket:
    if connection := _connect(jvm, tmp, deadline):
        return connection
    if not jvm.may_signal:
        raise CannotAttach(
            f"process {jvm.pid} does not handle SIGQUIT (-Xrs?), so its JVM cannot be asked "
            "to load an agent: leave out --agent"
        )
    trigger = f".attach_pid{jvm.own_pid}"
    with suppress(FileExistsError):
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        os.close(os.open(trigger, flags, 0o600, dir_fd=tmp))
    try:
        signal.pidfd_send_signal(jvm.handle, signal.SIGQUIT)
        while True:
            if connection := _connect(jvm, tmp, deadline):
                return connection
            time.sleep(min(_POLL_SECONDS, _seconds_left(deadline)))
    finally:
        with suppress(OSError):
            os.unlink(trigger, dir_fd=tmp)


def _connect(jvm: Jvm, tmp: int, deadline: float) -> socket.socket | None:
    """Connects to the socket of exactly this name, not to the target of a symbolic link."""
    name = f".java_pid{jvm.own_pid}"
    try:
        descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=tmp)
    except FileNotFoundError:
        return None
    try:
        _check_socket(jvm, name, os.fstat(descriptor))
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            connection.settimeout(_seconds_left(deadline))
            connection.connect(f"/proc/self/fd/{descriptor}")
        except BaseException as error:
            connection.close()
            if isinstance(error, ConnectionRefusedError):  # left by a JVM that has ended
                return None
            raise
        return connection
    finally:
        os.close(descriptor)


def _check_socket(jvm: Jvm, name: str, status: os.stat_result) -> None:
    place = f"{name} in the /tmp of process {jvm.pid}"
    if not stat.S_ISSOCK(status.st_mode):
        raise CannotAttach(f"{place} is no socket: remove it")
    if status.st_uid != os.geteuid():
        raise CannotAttach(f"{place} belongs to user {status.st_uid}, not the JVM's: remove it")
