# SPDX-License-Identifier: Apache-2.0
"""Shared memory as an application makes it, by hand: see drivers/PROTOCOL.md."""

from __future__ import annotations

import array
import fcntl
import json
import mmap
import os
import socket
import struct
from pathlib import Path
from typing import Any

HELLO = b"qjoule tags 1\n"


def memfd(content: bytes, *, seal: bool = True) -> int:
    """A descriptor of memory with this content at its start."""
    fd = os.memfd_create("hostile", os.MFD_ALLOW_SEALING)
    os.write(fd, content)
    if seal:
        fcntl.fcntl(fd, 1033, 0x2)  # F_ADD_SEALS, F_SEAL_SHRINK
    return fd


def header(slots: int = 2048, size: int = 64, magic: bytes = b"QJTAGS\x00\x01") -> bytes:
    """The header of a ring."""
    return struct.pack("=8sII", magic, slots, size).ljust(4096, b"\0")


def empty_ring(slots: int = 2048) -> int:
    """A descriptor of a ring without records."""
    return memfd(header(slots) + bytes(slots * 64))


def greet(path: Path, message: bytes, descriptors: list[int]) -> socket.socket:
    """Connects to a recorder; the message carries the descriptors, which are then closed here."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client.connect(str(path))
    rights = array.array("i", descriptors)
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if descriptors else []
    client.sendmsg([message], ancillary)
    for descriptor in descriptors:
        os.close(descriptor)
    return client


class HandMade:
    """An application whose every message and record a test writes itself."""

    def __init__(self, path: Path, ring: int | None = None) -> None:
        descriptor = empty_ring() if ring is None else ring
        self.memory = mmap.mmap(descriptor, 0)
        self.socket = greet(path, HELLO, [descriptor])

    def define(self, what: str, number: int, of: dict[str, Any]) -> None:
        self.socket.send(json.dumps({what: number, "of": of}).encode())

    def record(self, number: int, t_ns: int, connection: int, tags: int, kind: int = 1) -> None:
        at = 4096 + (number - 1) * 64 + 24
        struct.pack_into("=QQQQQ", self.memory, at, 0, t_ns, connection << 32 | tags, kind, number)
