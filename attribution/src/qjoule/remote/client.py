# SPDX-License-Identifier: Apache-2.0
"""Asks an agent for its snapshot or a recording, over one connection that is opened again when it
is lost.

The agent's bytes are hostile: heads and answers are bounded in size and time, redirects are not
followed, and nothing but an answer with its length is understood.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from qjoule.errors import QjouleError, UsageError
from qjoule.remote.tls import failed
from qjoule.remote.wire import MAX_BYTES
from qjoule.shapes.safe_text import sanitise, shorten

PORT = 9780
MAX_HEAD_BYTES = 16 << 10
#: For connecting, and for an answer from its request to its last byte.
ANSWER_S = 15.0
_PIECE, _WORDS = 1 << 16, 200
#: A recording may come as slowly as this.
LEAST_BYTES_PER_S = 50_000
_TOKEN = re.compile(r"[!-~]{1,4096}")


@dataclass(frozen=True)
class _Wanted:
    """A request. `size`, `write`: its answer must have so many bytes, and goes there in pieces."""

    path: str
    method: str = "GET"
    size: int = 0
    write: Callable[[bytes], object] | None = None

    @property
    def patience_s(self) -> float:
        return ANSWER_S + self.size / LEAST_BYTES_PER_S


_SNAPSHOT = _Wanted("/snapshot")


@dataclass(frozen=True)
class Address:
    """Where an agent listens."""

    host: str
    port: int
    is_encrypted: bool

    @property
    def name(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address_of(url: str) -> Address:
    """`https://db1:9780`; `http://` only for this machine itself. Raises `UsageError`."""
    try:
        found = urlsplit(url)
        host, port = found.hostname or "", found.port
    except ValueError:
        host, port, found = "", None, urlsplit("")
    whole = not (found.path.strip("/") or found.query or found.fragment or found.username)
    if found.scheme not in ("https", "http") or not host or not whole or not host.isascii():
        raise UsageError("--host must be a URL such as https://db1:9780")
    if found.scheme == "http" and not _is_loopback(host):
        raise UsageError(
            f"{host}: http:// sends the token in clear text: only https:// beyond this machine"
        )
    return Address(host, port or PORT, found.scheme == "https")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def checked_token(text: str) -> str:
    """A token as it may stand in a header. Raises `UsageError`."""
    token = text.strip()
    if not _TOKEN.fullmatch(token):
        raise UsageError("the token must be one word of ASCII characters")
    return token


class Connection:
    """To one agent. `token`: empty where a certificate is shown instead."""

    def __init__(self, address: Address, token: str, context: ssl.SSLContext | None) -> None:
        self._address, self._token, self._context = address, token, context
        self._socket: socket.socket | None = None
        self._beyond = b""
        self._tag = ""
        self._stopped = False

    def snapshot(self) -> bytes | None:
        """The agent's snapshot; None if it is the one that was read before.

        Raises:
            ConnectionError: it cannot be reached or is not ready now, and may be later.
            QjouleError: it refuses, or answers what is no answer.
        """
        return self._once_more(_SNAPSHOT)

    def document(self, path: str) -> bytes:
        """Another document. Raises as above."""
        return self._once_more(_Wanted(path)) or b""

    def order(self, path: str) -> None:
        """Has the agent do something: it may do so also if the answer is lost. Raises as above."""
        self._asked(_Wanted(path, "POST"))

    def fetch(self, path: str, size: int, write: Callable[[bytes], object]) -> None:
        """A file of so many bytes, in pieces. Raises as above."""
        self._asked(_Wanted(path, "GET", size, write))

    def _once_more(self, wanted: _Wanted) -> bytes | None:
        fresh = self._socket is None
        try:
            return self._asked(wanted)
        except ConnectionError:
            self.close()
            if fresh:
                raise
        return self._asked(wanted)  # a connection that rested may have been closed

    def close(self) -> None:
        """From any thread; a read that waits fails then."""
        if (open_one := self._socket) is not None:
            self._socket = None
            with suppress(OSError):
                open_one.shutdown(socket.SHUT_RDWR)
            open_one.close()

    def stop(self) -> None:
        """Closes it, and keeps it from being opened again."""
        self._stopped = True
        self.close()

    def _asked(self, wanted: _Wanted) -> bytes | None:
        until_s = time.monotonic() + wanted.patience_s
        try:
            connection = self._socket or self._open()
            connection.settimeout(_left(until_s))
            connection.sendall(self._request(wanted))
            code, headers, content = self._answer(connection, until_s, wanted)
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            self.close()
            raise ConnectionError(f"{self._address.name}: the connection was closed") from None
        except (ssl.SSLError, socket.gaierror) as error:
            self.close()
            raise failed(self._address.name, error) from None
        except (OSError, ValueError) as error:
            self.close()
            raise ConnectionError(str(failed(self._address.name, _as_os(error)))) from None
        if headers.get("connection", "").lower() == "close":
            self.close()
        if code == 304:
            return None
        words = shorten(
            sanitise(" ".join(content[:1000].decode("utf-8", "replace").split())), _WORDS
        )
        if code in (429, 503):
            raise ConnectionError(f"{self._address.name}: {words}")
        if code not in (200, 202):
            raise QjouleError(f"{self._address.name}: refused ({code}): {words}")
        if wanted is _SNAPSHOT:
            self._tag = headers.get("etag", "")[:_WORDS]
        return content

    def _open(self) -> socket.socket:
        address = self._address
        if self._stopped:
            raise ConnectionAbortedError(0, "the connection was closed")
        connection = socket.create_connection((address.host, address.port), ANSWER_S)
        try:
            if self._context is not None:
                connection = self._context.wrap_socket(connection, server_hostname=address.host)
        except BaseException:
            connection.close()
            raise
        self._socket, self._beyond = connection, b""
        return connection

    def _request(self, wanted: _Wanted) -> bytes:
        lines = [f"{wanted.method} {wanted.path} HTTP/1.1", f"Host: {self._address.name}"]
        if wanted.method == "POST":
            lines.append("X-Qjoule: 1")
        if self._token:
            lines.append(f"Authorization: Bearer {self._token}")
        if self._tag and wanted is _SNAPSHOT:
            lines.append(f"If-None-Match: {self._tag}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")

    def _answer(
        self, connection: socket.socket, until_s: float, wanted: _Wanted
    ) -> tuple[int, dict[str, str], bytes]:
        found = bytearray(self._beyond)
        while (end := found.find(b"\r\n\r\n")) < 0:
            if len(found) > MAX_HEAD_BYTES:
                raise self._wrong("a head without an end")
            found += self._more(connection, until_s)
        first, *rest = bytes(found[:end]).decode("latin-1").split("\r\n")
        words = first.split(" ", 2)
        if len(words) < 2 or words[0] != "HTTP/1.1" or not re.fullmatch("[1-5][0-9]{2}", words[1]):
            raise self._wrong("what is no HTTP")
        pairs = (line.partition(":") for line in rest)
        headers = {name.strip().lower(): of.strip() for name, _, of in pairs}
        length = headers.get("content-length", "")
        is_file = wanted.write is not None and words[1] == "200"
        most = wanted.size if is_file else MAX_BYTES
        if not re.fullmatch("[0-9]{1,15}", length) or int(length) > most:
            raise self._wrong("an answer that is too long, or of unknown length")
        if is_file and int(length) != most:
            raise self._wrong("a file of another size")
        content, left = found[end + 4 :], int(length)
        while len(content) < left:
            if wanted.write is not None and is_file:
                wanted.write(bytes(content))
                left -= len(content)
                content.clear()
            content += self._more(connection, until_s)
        self._beyond = bytes(content[left:])
        if wanted.write is not None and is_file:
            wanted.write(bytes(content[:left]))
            left = 0
        return int(words[1]), headers, bytes(content[:left])

    def _more(self, connection: socket.socket, until_s: float) -> bytes:
        connection.settimeout(_left(until_s))
        piece = connection.recv(_PIECE)
        if not piece:
            raise ConnectionResetError(0, "the connection was closed")
        return piece

    def _wrong(self, what: str) -> QjouleError:
        self.close()
        return QjouleError(f"{self._address.name}: sends {what}: is it qjoule's agent?")


def _left(until_s: float) -> float:
    left_s = until_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError(0, "no answer in time")
    return left_s


def _as_os(error: OSError | ValueError) -> OSError:
    if isinstance(error, TimeoutError) and not error.strerror:
        return TimeoutError(0, "no answer in time")
    return error if isinstance(error, OSError) else OSError(0, "the connection was closed")
