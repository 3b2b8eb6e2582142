"""A bare client of the MySQL protocol, for what drivers do not let one send.

MySQL 8.0 Source Code Documentation, "Client/Server Protocol"; MariaDB Knowledge Base,
"Client/Server Protocol".
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHUNK = 0xFFFFFF  #: the longest packet; a longer command goes on in the next
LONG_PASSWORD, CONNECT_WITH_DB, LOCAL_FILES, PROTOCOL_41 = 1, 8, 128, 512
TRANSACTIONS, SECURE, MULTI_STATEMENTS, MULTI_RESULTS = 1 << 13, 1 << 15, 1 << 16, 1 << 17
PLUGIN_AUTH = 1 << 19
CAPABILITIES = (LONG_PASSWORD | LOCAL_FILES | PROTOCOL_41 | TRANSACTIONS | SECURE) | (
    MULTI_STATEMENTS | MULTI_RESULTS | PLUGIN_AUTH
)
COM_QUIT, COM_QUERY, COM_STATISTICS, COM_PING, COM_CHANGE_USER = 0x01, 0x03, 0x09, 0x0E, 0x11
COM_PREPARE, COM_EXECUTE, COM_CLOSE, COM_RESET, COM_FETCH = 0x16, 0x17, 0x19, 0x1A, 0x1C
COM_RESET_CONNECTION = 0x1F
CURSOR_READ_ONLY = 1
TYPE_LONGLONG = 8
MORE_RESULTS, CURSOR_EXISTS, LAST_ROW_SENT = 0x08, 0x40, 0x80


class MysqlError(Exception):
    """The server's ERR packet."""


class MysqlClient:
    """One connection as root without a password. Every call waits for the whole reply."""

    def __init__(self, unix: Path | None = None, port: int = 0, database: str = "") -> None:
        if unix is not None:
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.connect(str(unix))
        else:
            self._socket = socket.create_connection(("127.0.0.1", port))
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(60)
        self._in = self._socket.makefile("rb")
        self._sequence = 0
        self._read()
        flags = CAPABILITIES | (CONNECT_WITH_DB if database else 0)
        login = struct.pack("<IIB23x", flags, CHUNK, 45) + b"root\0" + b"\0"
        login += (database.encode() + b"\0") if database else b""
        self._write(login + b"mysql_native_password\0")
        self._finish_login()

    # ---- commands -------------------------------------------------------------------------

    def query(self, statement: bytes) -> int:
        """Sends text; returns the number of rows of all its results."""
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

    def close_statement(self, statement_id: int) -> None:
        self.send(COM_CLOSE, struct.pack("<I", statement_id))  # has no reply

    def simple(self, command: int) -> None:
        """A command whose reply is one packet."""
        self.send(command, b"")
        self._checked()

    def change_user(self) -> None:
        self.send(
            COM_CHANGE_USER, b"root\0\0\0" + struct.pack("<H", 45) + b"mysql_native_password\0"
        )
        self._finish_login()

    def quit(self) -> None:
        self.send(COM_QUIT, b"")
        self.drop()

    def drop(self) -> None:
        """Closes the socket without a word."""
        self._in.close()
        self._socket.close()

    # ---- packets --------------------------------------------------------------------------

    def send(self, command: int, body: bytes) -> None:
        self._sequence = 0
        self._write(bytes([command]) + body)

    def results(self, *, binary: bool = False) -> int:
        rows = 0
        while True:
            reply = self._checked()
            if reply[0] == 0:
                status = _ok_status(reply)
            elif reply[0] == 0xFB:
                raise MysqlError("the server asks for a file")
            else:
                _, status = self._skip_to_eof()  # columns
                if not (binary and status & CURSOR_EXISTS):
                    got, status = self._skip_to_eof()
                    rows += got
            if not status & MORE_RESULTS:
                return rows

    def _skip_to_eof(self) -> tuple[int, int]:
        """Packets up to an EOF, and its status."""
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
            if reply[0] == 0xFE:  # another plugin: no password has an empty answer in all of them
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
        self._socket.sendall(b"".join(packets))

    def _read(self) -> bytes:
        header = self._in.read(4)
        if len(header) < 4:
            raise MysqlError("the server closed the connection")
        self._sequence = header[3] + 1
        return self._in.read(int.from_bytes(header[:3], "little"))


def _ok_status(packet: bytes) -> int:
    at = 1
    for _ in range(2):  # affected rows, last insert id: length-encoded
        at += {0xFC: 3, 0xFD: 4, 0xFE: 9}.get(packet[at], 1)
    return int(struct.unpack_from("<H", packet, at)[0])


@contextmanager
def mysql_client(
    unix: Path | None = None, port: int = 0, database: str = ""
) -> Iterator[MysqlClient]:
    client = MysqlClient(unix, port, database)
    try:
        yield client
    finally:
        client.drop()
