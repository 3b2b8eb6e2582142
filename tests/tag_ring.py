"""Memory as an application shares it, made by hand: see drivers/PROTOCOL.md."""

from __future__ import annotations

import fcntl
import os
import struct


def memfd(content: bytes, *, seal: bool = True) -> int:
    """A descriptor of memory that begins so."""
    fd = os.memfd_create("hostile", os.MFD_ALLOW_SEALING)
    os.write(fd, content)
    if seal:
        fcntl.fcntl(fd, 1033, 0x2)  # F_ADD_SEALS, F_SEAL_SHRINK
    return fd


def header(slots: int = 2048, size: int = 64, magic: bytes = b"QJTAGS\x00\x01") -> bytes:
    """What a ring begins with."""
    return struct.pack("=8sII", magic, slots, size).ljust(4096, b"\0")
