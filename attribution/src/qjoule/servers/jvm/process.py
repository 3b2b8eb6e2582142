# SPDX-License-Identifier: Apache-2.0
"""Reads a JVM's identity, and whether it listens, before an agent is loaded.

The loader itself reads nothing of /proc.
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
    of_root: bool  #: one of its user ids is 0: it is root or can become root


class ReachedJvm(Protocol):
    """One JVM of any user: the process that was found, not a later one with the same pid."""

    @property
    def pid(self) -> int: ...

    @property
    def access(self) -> Access:
        """Access to what the kernel reports of it. Data that others wrote is parsed by
        `examine`."""

    def examine(self, look: Callable[[Access], bytes]) -> bytes:
        """Returns the result of `look`, at least one byte, run in a process without rights.

        Raises:
            CannotAttach: it returned nothing.
        """

    def loader(
        self, identity: Identity, *, client_tags: bool, may_signal: bool, seconds: float
    ) -> socket.socket:
        """Starts `agent_loader` as the JVM's user; returns the socket on which its one message
        arrives. The loader ends at the latest when the socket is closed.

        Args:
            client_tags: the agent looks for clients' tags.
            may_signal: the JVM handles SIGQUIT.
            seconds: the JVM's time to answer.

        Raises:
            CannotAttach: the identity is wrong, or the JVM has ended.
        """

    def brings_pipe(self, loader: socket.socket) -> bool:
        """Returns true if the waiting message has a pipe attached.

        Another process looks, because it may hang: closing a file of a FUSE file system, which the
        JVM's user may have sent, waits for that user's program (fuse_flush()).
        """


#: Reaches a JVM by its pid and its executable's (device, inode). Raises `CannotAttach` if the JVM
#: has ended.
Reach = Callable[[int, tuple[int, int]], AbstractContextManager[ReachedJvm]]


def ended(pid: int) -> CannotAttach:
    return CannotAttach(f"process {pid} has ended")


def status_of(jvm: ReachedJvm) -> str:
    """Reads the JVM's /proc/PID/status.

    Raises:
        CannotAttach: the JVM has ended.
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
    """Returns true if the process handles SIGQUIT: otherwise the signal would end it."""
    caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> (signal.SIGQUIT - 1) & 1)


def check_attach_enabled(jvm: ReachedJvm) -> None:
    """Checks that the JVM can listen.

    Raises:
        CannotAttach: the JVM was started with an option that prevents it.
    """
    if jvm.examine(_attach_disabled) == b"disabled":
        raise CannotAttach(
            f"the JVM of process {jvm.pid} runs with -XX:{DISABLED}: "
            "restart it without, or leave out --agent"
        )


def _attach_disabled(access: Access) -> bytes:
    candidate = Candidate(access, "java")
    options = list(candidate.arguments)
    for name in _OPTION_VARIABLES:
        options += candidate.environment.get(name, "").split()
    return b"disabled" if f"-XX:{DISABLED}" in options else b"enabled"
