# SPDX-License-Identifier: Apache-2.0
"""Parses HTTP/1.1 requests, writes responses, and finds the origin of a connection.

Each origin has its own share of places and answers, so nobody can take those of others. An origin
is the remote address; of IPv6 its first 64 bits, because a host may choose the rest. On loopback
anybody may use any address, so the origin is the user of the client's socket.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass

PLAIN = "text/plain; charset=utf-8"
_REASONS = {
    200: "OK",
    304: "Not Modified",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


@dataclass(frozen=True)
class Request:
    """Names of headers are in lower case; equal ones are joined by commas."""

    path: str
    headers: Mapping[str, str]
    bare: bool  #: the method is HEAD


@dataclass(frozen=True)
class Response:
    """`headers`: further header lines."""

    code: int
    kind: str = PLAIN
    content: bytes = b""
    headers: tuple[str, ...] = ()


@dataclass(frozen=True)
class RequestError(Exception):
    """The request is not served; `answer` says why."""

    answer: Response


def is_complete(content: bytes | bytearray) -> bool:
    """Whether the head of a request has ended."""
    return b"\r\n\r\n" in content or b"\n\n" in content


def parse_request(content: bytes) -> Request:
    """A request whose head is whole. Raises `RequestError`."""
    text = content.decode("latin-1").replace("\r\n", "\n")
    first, *rest = text.partition("\n\n")[0].split("\n")
    parts = first.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise RequestError(Response(400, content=b"that is no HTTP request\n"))
    if parts[0] not in ("GET", "HEAD"):
        raise RequestError(Response(405, content=b"only GET and HEAD\n"))
    headers: dict[str, str] = {}
    for name, _, of in (line.partition(":") for line in rest):
        header = name.strip().lower()
        headers[header] = f"{headers[header]},{of.strip()}" if header in headers else of.strip()
    return Request(parts[1].partition("?")[0], headers, parts[0] == "HEAD")


def response_head(answer: Response) -> bytes:
    lines = [
        f"HTTP/1.1 {answer.code} {_REASONS[answer.code]}",
        f"Content-Type: {answer.kind}",
        f"Content-Length: {len(answer.content)}",
        "Connection: close",
        "X-Content-Type-Options: nosniff",
        "Cache-Control: no-store",
        *answer.headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode()


_NETWORK_BITS = 64
#: Returns the user of a client's socket, by its local and remote end ("address port"); or None.
UserOf = Callable[[str, str], int | None]


def _unknown(_client: str, _server: str) -> int | None:
    return None


class Origins:
    """Finds the origin of connections. All unknown users of loopback are one."""

    def __init__(self, user_of: UserOf = _unknown) -> None:
        self._user_of = user_of

    def of(self, connection: socket.socket) -> str:
        """Raises `OSError`: it is not connected any more."""
        there, its_port = _end(connection.getpeername())
        if there.is_loopback:
            here, port = _end(connection.getsockname())
            user = self._user_of(f"{there} {its_port}", f"{here} {port}")
            return "loopback" if user is None else f"user {user}"
        if there.version == 6:
            return str(ipaddress.ip_network((there, _NETWORK_BITS), strict=False))
        return str(there)


def _end(address: tuple[str, int]) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]:
    ip = ipaddress.ip_address(address[0].partition("%")[0])
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return mapped or ip, address[1]
