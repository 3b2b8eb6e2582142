# SPDX-License-Identifier: Apache-2.0
"""A client of MySQL's X Protocol: it logs in and executes statements.

A message is its length including the type, 32 bits little-endian, its type, and protocol buffers:
MySQL Source Code Documentation, "X Protocol", and plugin/x/protocol/protobuf/mysqlx*.proto.
"""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from types import TracebackType

_AUTHENTICATE, _EXECUTE = 4, 12  # client's messages
_ERROR, _AUTHENTICATED, _EXECUTED = 1, 4, 17  # server's messages
_TIMEOUT_S = 60.0


class XClient:
    """A session: a context manager.

    Raises:
        RuntimeError: the server refuses it, or a statement.
    """

    def __init__(self, path: Path, user: bytes = b"root") -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(_TIMEOUT_S)
        self._socket.connect(str(path))
        # Without a password; a unix socket is safe enough for this method.
        self._send(_AUTHENTICATE, _field(1, b"PLAIN") + _field(2, b"\0" + user + b"\0"))
        self._until(_AUTHENTICATED)

    def __enter__(self) -> XClient:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def query(self, text: bytes) -> None:
        self._send(_EXECUTE, _field(1, text))
        self._until(_EXECUTED)

    def _send(self, kind: int, body: bytes) -> None:
        self._socket.sendall(struct.pack("<IB", len(body) + 1, kind) + body)

    def _until(self, wanted: int) -> None:
        while (kind := self._message()) != wanted:
            if kind == _ERROR:
                raise RuntimeError("the server answers with an error")

    def _message(self) -> int:
        (length,) = struct.unpack("<I", self._exactly(4))
        return self._exactly(length)[0]

    def _exactly(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            part = self._socket.recv(count - len(found))
            if not part:
                raise RuntimeError("the server has closed the connection")
            found += part
        return found


def _field(number: int, text: bytes) -> bytes:
    """A field of bytes, of at most 127."""
    assert len(text) < 128
    return bytes([number << 3 | 2, len(text)]) + text
