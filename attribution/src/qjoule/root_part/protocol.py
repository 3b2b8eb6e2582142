# SPDX-License-Identifier: Apache-2.0
"""Requests to the root part: mirrors tracer/root/protocol.h (a contract test compares them).

Each request gets one reply over a SOCK_SEQPACKET socket; each carries at most one descriptor.
`Sensors` opens counters and energy files in the same way as the tracer.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from qjoule.errors import QjouleError

TEXT_BYTES = 4096
CODE_BYTES = 16
MAX_KEPT = 16
ACCOUNT_TYPES = 64
UPROBES = 2  #: type of programs that a trap runs (BPF_PROG_TYPE_KPROBE, linux/bpf.h)
START_AGAIN = 75  #: exit code of the agent that asks for a restart with the same command
_REQUEST = struct.Struct(f"=IiIIQQ{TEXT_BYTES}s")
_FILE = struct.Struct("=IIIIQQQQQ")
_REPLY = struct.Struct(f"=ii{_FILE.size}s{TEXT_BYTES}s")
_ACCOUNT = struct.Struct("=QQ")


class Kind(IntEnum):
    """`enum rp_kind`."""

    EXE = 1
    BIND = 2
    TRACER = 3
    DIRECTORY = 4
    TAG_SOCKET = 5
    AS = 6
    KEEPER = 7
    RUN = 24
    PUBLISH = 25
    ACCOUNTS = 26
    GIVEN = 27
    PIN = 28
    OPEN = 32
    COUNTER = 64
    ENERGY_FILE = 65
    LOAD = 66
    MAP = 67
    RING = 68
    ATTACH = 69
    DONE = 70


class What(IntEnum):
    """`enum rp_what`."""

    EXE = 1
    MAPPED = 2
    FILE = 3
    SAME = 4
    SOCKETS = 5
    PROC = 6
    KEPT = 7


@dataclass(frozen=True)
class Opened:
    """`struct rp_file`: a file that was opened and checked. `handle` is 0 if it gets no probes."""

    handle: int
    mode: int
    uid: int
    gid: int
    device: int
    inode: int
    size: int  #: bytes
    mtime_ns: int
    ctime_ns: int


@dataclass(frozen=True)
class Account:
    """`struct rp_account`: what the programs of one type ran since they were loaded."""

    runs: int
    ns: int  #: includes the kernel's readings of its clock around each run


@dataclass(frozen=True)
class Reply:
    """The root part's answer. The caller owns `fd`, which is -1 without a descriptor."""

    pid: int
    file: Opened
    text: bytes  #: without the NUL at its end
    fd: int
    content: bytes = b""  #: the whole text field

    def accounts(self) -> tuple[Account, ...]:
        """Decodes the answer to `Kind.ACCOUNTS`, indexed by `enum bpf_prog_type`."""
        all_of_them = self.content[: ACCOUNT_TYPES * _ACCOUNT.size]
        return tuple(Account(*fields) for fields in _ACCOUNT.iter_unpack(all_of_them))


class Refused(QjouleError):
    """The root part answered with an error; `errno` says which."""

    def __init__(self, number: int) -> None:
        super().__init__(os.strerror(number))
        self.errno = number


class RootPartGone(QjouleError):
    """The root part has ended."""

    def __init__(self) -> None:
        super().__init__("the root part (qjoule-root) has ended")


def ask(
    connection: socket.socket,
    kind: Kind,
    *,
    pid: int = 0,
    number: int = 0,
    flags: int = 0,
    offset: int = 0,
    size: int = 0,
    text: bytes = b"",
    fd: int | None = None,
) -> Reply:
    """Sends a request and waits for the answer.

    Raises:
        Refused: the answer is an error, or the text does not fit (ENAMETOOLONG).
        RootPartGone: the root part has ended.
    """
    if len(text) >= TEXT_BYTES:
        raise Refused(errno.ENAMETOOLONG)
    message = _REQUEST.pack(kind, pid, number, flags, offset, size, text)
    try:
        socket.send_fds(connection, [message], [] if fd is None else [fd])
        return _receive(connection)
    except OSError:
        raise RootPartGone from None


def _receive(connection: socket.socket) -> Reply:
    content, fds, _, _ = socket.recv_fds(connection, _REPLY.size, 1)
    if len(content) != _REPLY.size:
        for descriptor in fds:
            os.close(descriptor)
        raise RootPartGone
    status, pid, file, text = _REPLY.unpack(content)
    if status:
        for descriptor in fds:
            os.close(descriptor)
        raise Refused(-status)
    fd = fds[0] if fds else -1
    return Reply(pid, Opened(*_FILE.unpack(file)), text.partition(b"\0")[0], fd, text)


class Sensors:
    """Tries sensors before the tracer starts, over its socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def try_event(self, event_type: int, config: int, flags: int = 0) -> int:
        """As `machine.perf_events.try_event`: 0, or the errno of the refusal.

        `flags`: as `machine.perf_events.PerfEvent` has them.
        """
        try:
            reply = ask(self._connection, Kind.COUNTER, number=event_type, flags=flags, size=config)
        except Refused as error:
            return error.errno
        os.close(reply.fd)
        return 0

    def may_read(self, path: Path) -> bool:
        """Returns true if an energy file can be read, by the root part or with our own rights."""
        if os.access(path, os.R_OK, effective_ids=True):
            return True
        try:
            reply = ask(self._connection, Kind.ENERGY_FILE, text=os.fsencode(path))
        except Refused:
            return False
        os.close(reply.fd)
        return True
