# SPDX-License-Identifier: Apache-2.0
"""What must be known of a JVM before an agent can be loaded: its identity, and whether it listens.

Read before the loader is started, because the loader itself reads nothing of /proc.
"""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from qjoule.servers.access import Access, ProcFile
from qjoule.servers.candidate import Candidate
from qjoule.servers.jvm.attach import DISABLED, CannotAttach

_OPTION_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")


@dataclass(frozen=True)
class Identity:
    """Identity of a process: effective user and group, and its number in its own pid namespace."""

    uid: int
    gid: int
    pid: int
    of_root: bool  #: one of its user ids is 0: it is root, or can become root again


class ReachedJvm(Protocol):
    """One JVM of any user: the process that was found, not a later one with the same number."""

    @property
    def pid(self) -> int: ...

    @property
    def access(self) -> Access:
        """For what the kernel itself reports of it. Data that others wrote is parsed by
        `examine`.
        """

    def examine(self, look: Callable[[Access], bytes]) -> bytes:
        """The result of `look`, at least one byte, run in a process without rights.

        Raises:
            CannotAttach: it returned nothing.
        """

    def loader(
        self, identity: Identity, *, client_tags: bool, may_signal: bool, seconds: float
    ) -> socket.socket:
        """Starts `agent_loader` as the JVM's user; the socket on which its one message arrives.

        It ends once the socket is closed, if it has not yet.

        Args:
            client_tags: the agent looks for tags of clients.
            may_signal: the JVM handles SIGQUIT.
            seconds: the JVM may take to answer.

        Raises:
            CannotAttach: that is not its user, or the JVM has ended.
        """

    def brings_pipe(self, loader: socket.socket) -> bool:
        """Whether the message that waits there has a pipe beside it.

        Another process looks: one that closes a file of a program's file system (FUSE), as the
        JVM's user may have sent, waits for that program, and cannot be killed (fuse_flush()).
        """


#: Reaches a JVM by its pid and its executable's (device, inode). Raises `CannotAttach` if it has
#: ended.
Reach = Callable[[int, tuple[int, int]], AbstractContextManager[ReachedJvm]]


def ended(pid: int) -> CannotAttach:
    return CannotAttach(f"process {pid} has ended")


def status_of(jvm: ReachedJvm) -> str:
    """Its /proc/PID/status.

    Raises:
        CannotAttach: it has ended.
    """
    status = jvm.access.proc(ProcFile.STATUS).decode(errors="replace")
    if not status:
        raise ended(jvm.pid)
    return status


def identity_of(pid: int, status: str) -> Identity:
    """Reads the identity of a process from its status.

    Args:
        status: its /proc/PID/status.

    Raises:
        CannotAttach: the status is unusable because the process has ended.
    """
    fields = {
        name: values.split() for name, _, values in (s.partition(":") for s in status.splitlines())
    }
    try:
        own_pid = int(fields.get("NSpid", fields["Pid"])[-1])
        uids = [int(uid) for uid in fields["Uid"]]
        return Identity(uids[1], int(fields["Gid"][1]), own_pid, 0 in uids)
    except (KeyError, IndexError, ValueError):
        raise ended(pid) from None


def handles_quit(status: str) -> bool:
    """Whether the process handles SIGQUIT: otherwise the signal would end it."""
    caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> (signal.SIGQUIT - 1) & 1)


def check_attach_enabled(jvm: ReachedJvm) -> None:
    """Checks that the JVM can listen.

    Raises:
        CannotAttach: the JVM was started with an option that prevents it.
    """
    if jvm.examine(_whether_disabled) == b"disabled":
        raise CannotAttach(
            f"the JVM of process {jvm.pid} runs with -XX:{DISABLED}: "
            "restart it without, or leave out --agent"
        )


def _whether_disabled(access: Access) -> bytes:
    candidate = Candidate(access, "java")
    options = list(candidate.arguments)
    for name in _OPTION_VARIABLES:
        options += candidate.environment.get(name, "").split()
    return b"disabled" if f"-XX:{DISABLED}" in options else b"enabled"
