# SPDX-License-Identifier: Apache-2.0
"""Receives calls that applications report, for a recording or a live view."""

from __future__ import annotations

import errno
import os
import socket
import struct
from contextlib import suppress
from pathlib import Path

from qjoule.errors import QjouleError
from qjoule.root_part.access import SocketAccess
from qjoule.root_part.bound import bound
from qjoule.root_part.client import root_part
from qjoule.root_part.protocol import Refused
from qjoule.servers.plan import AttachPlan
from qjoule.tags.addresses import Addresses
from qjoule.tags.listening import DEFAULT_PATH
from qjoule.tags.tagging import TagSource

_CREDENTIALS = struct.Struct("iII")  #: struct ucred: pid, uid, gid


def listen(plan: AttachPlan, *, every_call: bool) -> tuple[TagSource | None, str]:
    """The applications of this host, or the reason why they cannot report, which is not fatal.

    `every_call`: also take calls to servers whose queries probes see.
    """
    told = [
        one
        for one in plan.traced
        if every_call or one.choice.by_thread or (one.hides_sessions and one.server.running)
    ]
    hidden = frozenset(one.server.id for one in told if not (every_call or one.choice.by_thread))
    addresses = Addresses.of([one.server for one in told], network_of=network_of)
    try:
        listening = root_part().tag_socket()
    except Refused as error:
        return None, f"queries will not be tagged: {_why_not(error)}"
    return TagSource(listening=listening, addresses=addresses, hidden=hidden), ""


def network_of(pid: int) -> str | None:
    """Name of a process's network namespace, from /proc/PID/ns/net; None if it has
    ended or may not be inspected.
    """
    connection = root_part().connection
    try:
        if connection is None:
            return str(Path(f"/proc/{pid}/ns/net").readlink())
        with bound(connection, pid)[1] as theirs:
            return SocketAccess(theirs).network() or None
    except (OSError, QjouleError):
        return None


def _why_not(error: Refused) -> str:
    if error.errno == errno.EADDRINUSE:
        return holder(Path(os.environ.get("QJOULE_TAGS_SOCKET") or DEFAULT_PATH))
    if error.errno == errno.EPERM:
        return "others than root may write where applications connect: remove /run/qjoule"
    return f"cannot listen for tags: {error}"


def holder(path: Path) -> str:
    """Who listens at a tag socket, in words."""
    if path.exists() and not path.is_socket():
        return f"{path} is no socket"
    who = "another recorder takes the tags"
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        probe.setblocking(False)
        probe.connect(str(path))
        peer = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, _, _ = _CREDENTIALS.unpack(peer)
        who += f" (process {pid})"
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"agent" in words:
            who = f"the agent takes the tags (process {pid}): record with --client-tags, or stop it"
    return who
