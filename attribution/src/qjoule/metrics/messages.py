# SPDX-License-Identifier: Apache-2.0
"""Requests and answers of HTTP/1.1: what is read of one, and how the other is written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

PLAIN = "text/plain; charset=utf-8"
_REASONS = {
    200: "OK",
    202: "Accepted",
    304: "Not Modified",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    409: "Conflict",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


@dataclass(frozen=True)
class Request:
    """Names of headers are in lower case; equal ones are joined by commas."""

    path: str
    headers: Mapping[str, str]
    bare: bool  #: HEAD
    address: str  #: of the client
    certificate: str = ""  #: common name of the client's certificate, which was checked
    query: str = ""  #: what follows `?`
    posts: bool = False  #: POST, without a body


@dataclass(frozen=True)
class Answer:
    """`file`: a descriptor and how many of its bytes are the content instead."""

    code: int
    kind: str = PLAIN
    content: bytes = b""
    headers: tuple[str, ...] = ()
    file: tuple[int, int] | None = None


@dataclass(frozen=True)
class Wrong(Exception):
    """What is no request that is served; `answer` says why."""

    answer: Answer


def is_whole(content: bytes | bytearray) -> bool:
    """Whether the head of a request has ended."""
    return b"\r\n\r\n" in content or b"\n\n" in content


def request_of(
    content: bytes, address: str, certificate: str, *, posts: bool
) -> tuple[Request, bool]:
    """A request whose head is whole, and whether its connection may be kept.

    `posts`: POST is served. Raises `Wrong`.
    """
    text = content.decode("latin-1").replace("\r\n", "\n")
    head, _, beyond = text.partition("\n\n")
    first, *rest = head.split("\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise Wrong(Answer(400, content=b"that is no HTTP request\n"))
    methods = ("GET", "HEAD", "POST") if posts else ("GET", "HEAD")
    if words[0] not in methods:
        raise Wrong(Answer(405, content=f"only {' and '.join(methods[::2])}\n".encode()))
    headers: dict[str, str] = {}
    for name, _, of in (line.partition(":") for line in rest):
        named = name.strip().lower()
        headers[named] = f"{headers[named]},{of.strip()}" if named in headers else of.strip()
    if words[0] == "POST" and (
        beyond
        or "transfer-encoding" in headers
        or not re.fullmatch("0*", headers.get("content-length", ""))
    ):
        raise Wrong(Answer(400, content=b"a POST must have no body\n"))
    # Beyond the head are a body, or a request before its turn.
    kept = words[2] == "HTTP/1.1" and not beyond
    path, _, query = words[1].partition("?")
    bare, posted = words[0] == "HEAD", words[0] == "POST"
    request = Request(path, headers, bare, address, certificate, query, posted)
    return request, kept and headers.get("connection", "").lower() != "close"


def head_of(answer: Answer, *, kept: bool) -> bytes:
    size = len(answer.content) if answer.file is None else answer.file[1]
    lines = [
        f"HTTP/1.1 {answer.code} {_REASONS[answer.code]}",
        f"Content-Type: {answer.kind}",
        f"Content-Length: {size}",
        f"Connection: {'keep-alive' if kept else 'close'}",
        "X-Content-Type-Options: nosniff",
        "Cache-Control: no-store",
        *answer.headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode()
