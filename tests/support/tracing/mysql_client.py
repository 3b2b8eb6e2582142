# SPDX-License-Identifier: Apache-2.0
"""A bare client of the MySQL protocol, for what drivers cannot send.

MySQL 8.0 Source Code Documentation, "Client/Server Protocol"; MariaDB Knowledge Base,
"Client/Server Protocol".
"""

from __future__ import annotations

import io
import socket
import ssl
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tracing.mysql_values import attributes_of_connection, ok_status

CHUNK = 0xFFFFFF  #: the longest packet; a longer command goes on in the next
LONG_PASSWORD, CONNECT_WITH_DB, ZLIB, LOCAL_FILES, PROTOCOL_41, TLS = 1, 8, 32, 128, 512, 2048
TRANSACTIONS, SECURE, MULTI_STATEMENTS, MULTI_RESULTS = 1 << 13, 1 << 15, 1 << 16, 1 << 17
PLUGIN_AUTH, CONNECT_ATTRIBUTES = 1 << 19, 1 << 20
ZSTD, QUERY_ATTRIBUTES, BULK = 1 << 26, 1 << 27, 1 << 34
CAPABILITIES = (LONG_PASSWORD | LOCAL_FILES | PROTOCOL_41 | TRANSACTIONS | SECURE) | (
    MULTI_STATEMENTS | MULTI_RESULTS | PLUGIN_AUTH
)
COM_QUIT, COM_INIT_DB, COM_QUERY, COM_STATISTICS = 0x01, 0x02, 0x03, 0x09
COM_PING, COM_CHANGE_USER, COM_BINLOG_DUMP, COM_LONG_DATA = 0x0E, 0x11, 0x12, 0x18
COM_PREPARE, COM_EXECUTE, COM_CLOSE, COM_RESET, COM_FETCH = 0x16, 0x17, 0x19, 0x1A, 0x1C
COM_RESET_CONNECTION, COM_BULK_EXECUTE = 0x1F, 0xFA
CURSOR_READ_ONLY = 1
TYPE_LONGLONG, TYPE_BLOB = 8, 252
MORE_RESULTS, CURSOR_EXISTS, LAST_ROW_SENT = 0x08, 0x40, 0x80


class MysqlError(Exception):
    """The server's ERR packet."""


class MysqlClient:
    """One connection as root without a password. Every call waits for the whole reply.

    `flags`: further capabilities. With ZLIB or ZSTD, packets are sent in compressed frames. With
    ZSTD only those too short to be worth compressing can be sent; the replies must be short, too.
    """

    def __init__(
        self,
        unix: Path | None = None,
        port: int = 0,
        database: str = "",
        flags: int = 0,
        attributes: Mapping[bytes, bytes] = {b"program_name": b"m_wire_py"},
        *,
        collation: int = 45,  # utf8mb4
    ) -> None:
        if unix is not None:
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.connect(str(unix))
        else:
            self._socket = socket.create_connection(("127.0.0.1", port))
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(60)
        self._in = self._socket.makefile("rb")
        self._sequence = 0
        self._frames: _Frames | None = None
        self._read()
        flags |= CAPABILITIES | (CONNECT_WITH_DB if database else 0)
        if flags >> 32:  # MariaDB's own capabilities are accepted from clients that are not MySQL's
            flags &= ~LONG_PASSWORD
        self._attributes = flags & CONNECT_ATTRIBUTES != 0
        login = struct.pack("<IIB19xI", flags & 0xFFFFFFFF, CHUNK, collation, flags >> 32)
        if flags & TLS:
            self._write(login)
            self._encrypt()
        login += b"root\0" + b"\0"
        login += (database.encode() + b"\0") if database else b""
        login += b"mysql_native_password\0"
        if self._attributes:
            login += attributes_of_connection(attributes)
        self._write(login + (b"\3" if flags & ZSTD else b""))
        self._finish_login()
        self._frames = _Frames(self._socket) if flags & (ZLIB | ZSTD) else None

    # ---- commands -------------------------------------------------------------------------

    def query(self, statement: bytes) -> int:
        """Sends text; returns the number of rows in all its results."""
        self.send(COM_QUERY, statement)
        return self.results()

    def prepare(self, statement: bytes) -> int:
        self.send(COM_PREPARE, statement)
        reply = self._checked()
        statement_id, columns, parameters = struct.unpack_from("<IHH", reply, 1)
        for count in (parameters, columns):
            if count:
                self._skip_to_eof()
        return int(statement_id)

    def execute(self, statement_id: int, *parameters: int, cursor: bool = False) -> int:
        body = struct.pack("<IBI", statement_id, CURSOR_READ_ONLY if cursor else 0, 1)
        if parameters:
            body += bytes((len(parameters) + 7) // 8) + b"\1"
            body += struct.pack("<BB", TYPE_LONGLONG, 0) * len(parameters)
            body += struct.pack(f"<{len(parameters)}q", *parameters)
        self.send(COM_EXECUTE, body)
        return self.results(binary=True)

    def fetch(self, statement_id: int, rows: int) -> int:
        """Rows from an open cursor."""
        self.send(COM_FETCH, struct.pack("<II", statement_id, rows))
        return self._skip_to_eof()[0]

    def init_db(self, database: bytes) -> None:
        self.send(COM_INIT_DB, database)
        self._checked()

    def long_data(self, statement_id: int, parameter: int, part: bytes) -> None:
        """Sends a part of a parameter; has no reply."""
        self.send(COM_LONG_DATA, struct.pack("<IH", statement_id, parameter) + part)

    def execute_long(self, statement_id: int) -> int:
        """Executes with one parameter that was sent by `long_data` before."""
        body = struct.pack("<IBI", statement_id, 0, 1) + b"\0\1" + bytes([TYPE_BLOB, 0])
        self.send(COM_EXECUTE, body)
        return self.results(binary=True)

    def reset_statement(self, statement_id: int) -> None:
        self.send(COM_RESET, struct.pack("<I", statement_id))
        self._checked()

    def bulk_execute(self, statement_id: int, values: Iterable[int]) -> None:
        """Inserts one row for each value (MariaDB: COM_STMT_BULK_EXECUTE, with types)."""
        body = struct.pack("<IHBB", statement_id, 128, TYPE_LONGLONG, 0)
        self.send(COM_BULK_EXECUTE, body + b"".join(b"\0" + struct.pack("<q", v) for v in values))
        self._checked()

    def load_file(self, statement: bytes, parts: Iterable[bytes], *, early: bool = False) -> None:
        """LOAD DATA LOCAL with these packets; `early`: sent before the server asks."""
        self.send(COM_QUERY, statement)
        if not early:
            assert self._checked()[0] == 0xFB
        else:
            self._sequence = 2
        for part in [*parts, b""]:
            self._write(part)
        if early:
            assert self._checked()[0] == 0xFB
        self._checked()

    def close_statement(self, statement_id: int) -> None:
        self.send(COM_CLOSE, struct.pack("<I", statement_id))  # has no reply

    def simple(self, command: int) -> None:
        """Sends a command whose reply is one packet."""
        self.send(command, b"")
        self._checked()

    def change_user(
        self,
        user: bytes = b"root",
        database: bytes = b"",
        attributes: Mapping[bytes, bytes] = {},
    ) -> None:
        body = user + b"\0\0" + database + b"\0"
        body += struct.pack("<H", 45) + b"mysql_native_password\0"
        self.send(
            COM_CHANGE_USER,
            body + (attributes_of_connection(attributes) if self._attributes else b""),
        )
        self._finish_login()

    def next_packet(self) -> bytes:
        """The next packet of a reply that never ends, as a replica gets it."""
        return self._checked()

    def quit(self) -> None:
        self.send(COM_QUIT, b"")
        self.drop()

    def drop(self) -> None:
        """Closes the socket without COM_QUIT."""
        self._in.close()
        self._socket.close()

    def _encrypt(self) -> None:
        context = ssl._create_unverified_context()  # whichever server it is
        self._in.close()
        self._socket = context.wrap_socket(self._socket)
        self._in = self._socket.makefile("rb")

    # ---- packets --------------------------------------------------------------------------

    def send(self, command: int, body: bytes) -> None:
        self._sequence = 0
        self._write(bytes([command]) + body)

    def results(self, *, binary: bool = False) -> int:
        rows = 0
        while True:
            reply = self._checked()
            if reply[0] == 0:
                status = ok_status(reply)
            elif reply[0] == 0xFB:
                raise MysqlError("the server asks for a file")
            else:
                _, status = self._skip_to_eof()  # columns
                if not (binary and status & CURSOR_EXISTS):
                    result_rows, status = self._skip_to_eof()
                    rows += result_rows
            if not status & MORE_RESULTS:
                return rows

    def _skip_to_eof(self) -> tuple[int, int]:
        """Skips packets up to an EOF; returns its status."""
        count = 0
        while True:
            packet = self._checked(first=False)
            if packet[0] == 0xFE and len(packet) < 9:
                return count, int(struct.unpack_from("<H", packet, 3)[0])
            count += 1

    def _finish_login(self) -> None:
        while True:
            reply = self._checked()
            if reply[0] == 0:
                return
            if reply[0] == 0xFE:  # another plugin: no password is an empty answer in all of them
                self._write(b"")

    def _checked(self, first: bool = True) -> bytes:
        packet = self._read()
        if packet[0] == 0xFF and (first or len(packet) > 3):
            raise MysqlError(packet[3:].decode(errors="replace"))
        return packet

    def _write(self, body: bytes) -> None:
        packets = []
        while True:
            part, body = body[:CHUNK], body[CHUNK:]
            packets.append(struct.pack("<I", len(part))[:3] + bytes([self._sequence & 255]) + part)
            self._sequence += 1
            if len(part) < CHUNK:
                break
        if self._frames is None:
            self._socket.sendall(b"".join(packets))
        else:
            self._frames.send(b"".join(packets))

    def _read(self) -> bytes:
        header = self._take(4)
        if len(header) < 4:
            raise MysqlError("the server closed the connection")
        self._sequence = header[3] + 1
        return self._take(int.from_bytes(header[:3], "little"))

    def _take(self, size: int) -> bytes:
        return self._in.read(size) if self._frames is None else self._frames.read(self._in, size)


class _Frames:
    """Compressed packets ("Compressed Packet Header")."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._plain = io.BytesIO()

    def send(self, packets: bytes) -> None:
        for number, start in enumerate(range(0, len(packets), CHUNK)):
            part = packets[start : start + CHUNK]
            header = len(part).to_bytes(3, "little") + bytes([number & 255]) + bytes(3)
            self._socket.sendall(header + part)

    def read(self, stream: io.BufferedReader, size: int) -> bytes:
        out = self._plain.read(size)
        while len(out) < size:
            header = stream.read(7)
            if len(header) < 7:
                raise MysqlError("the server closed the connection")
            body = stream.read(int.from_bytes(header[:3], "little"))
            self._plain = io.BytesIO(zlib.decompress(body) if any(header[4:]) else body)
            out += self._plain.read(size - len(out))
        return out


@contextmanager
def mysql_client(
    unix: Path | None = None, port: int = 0, database: str = "", flags: int = 0, **options: Any
) -> Iterator[MysqlClient]:
    client = MysqlClient(unix, port, database, flags, **options)
    try:
        yield client
    finally:
        client.drop()
