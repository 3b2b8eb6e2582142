# SPDX-License-Identifier: Apache-2.0
"""Requests and answers of HTTP/1.1: what is read of one, and how the other is written."""

from __future__ import annotations

from collections.abc import Mapping
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
    bare: bool  #: HEAD


@dataclass(frozen=True)
class Answer:
    """What is sent back; `headers` are further ones, as they stand."""

    code: int
    kind: str = PLAIN
    content: bytes = b""
    headers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Wrong(Exception):
    """What is no request that is served; `answer` says why."""

    answer: Answer


def is_whole(content: bytes | bytearray) -> bool:
    """Whether the head of a request has ended."""
    return b"\r\n\r\n" in content or b"\n\n" in content


def request_of(content: bytes) -> Request:
    """A request whose head is whole. Raises `Wrong`."""
    text = content.decode("latin-1").replace("\r\n", "\n")
    first, *rest = text.partition("\n\n")[0].split("\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise Wrong(Answer(400, content=b"that is no HTTP request\n"))
    if words[0] not in ("GET", "HEAD"):
        raise Wrong(Answer(405, content=b"only GET and HEAD\n"))
    headers: dict[str, str] = {}
    for name, _, of in (line.partition(":") for line in rest):
        named = name.strip().lower()
        headers[named] = f"{headers[named]},{of.strip()}" if named in headers else of.strip()
    return Request(words[1].partition("?")[0], headers, words[0] == "HEAD")


def head_of(answer: Answer) -> bytes:
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
