# SPDX-License-Identifier: Apache-2.0
"""Posts to one address, with bounds. It follows no redirect and no proxy of the environment:
credentials go to the address that was configured, and nowhere else.
"""

from __future__ import annotations

import os
import re
import ssl
import stat
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path

from qjoule.errors import QjouleError, UsageError
from qjoule.push.pusher import Outcome, Result

_TIMEOUT_S = 10.0
_MOST_ANSWER_BYTES = 64 << 10
_MOST_WAIT_S = 60.0
_MOST_HEADERS_BYTES = 64 << 10


class Poster:
    """`ca`: certificates that sign the receiver's; empty: those of the system."""

    SENT = Outcome.SENT

    def __init__(self, url: str, headers: Mapping[str, str], ca: str = "") -> None:
        """Raises QjouleError: `ca` is no file of certificates."""
        try:
            tls = ssl.create_default_context(cafile=ca or None)
        except OSError as error:
            raise QjouleError(f"{ca}: no certificates: {error}") from None
        self._url, self._headers = url, headers
        self._opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.HTTPHandler(),
            urllib.request.HTTPSHandler(context=tls),
            urllib.request.HTTPDefaultErrorHandler(),
            urllib.request.HTTPErrorProcessor(),
        ):
            self._opener.add_handler(handler)

    def post(self, content: bytes, headers: Mapping[str, str]) -> Result:
        """Whether it was taken. A redirect, and an answer of 4xx except 429, refuse it for good."""
        request = urllib.request.Request(
            self._url, content, {**headers, **self._headers}, method="POST"
        )
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as answer:
                answer.read(_MOST_ANSWER_BYTES)
                return Result(Outcome.SENT)
        except urllib.error.HTTPError as error:
            with error:
                if 300 <= error.code < 500 and error.code != 429:
                    return Result(Outcome.REJECTED)
                return Result(Outcome.FAILED, _wait_s(error.headers.get("Retry-After", "")))
        except (OSError, HTTPException):
            return Result(Outcome.FAILED)


def _wait_s(text: str) -> float:
    return min(float(text), _MOST_WAIT_S) if re.fullmatch(r"[0-9]{1,6}", text) else 0.0


def read_headers(path: str) -> dict[str, str]:
    """Headers in a file that only our user may read, one `Name: value` a line.

    Raises:
        UsageError: others may read it, or a line is no header.
    """
    try:
        with Path(path).open("rb") as file:
            about = os.fstat(file.fileno())
            content = file.read(_MOST_HEADERS_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    if about.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UsageError(f"{path}: others may read it: chmod 600 {path}")
    found = {}
    for line in content.decode("utf-8", "replace").split("\n"):
        if not line.strip():
            continue
        header = re.fullmatch(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\x20-\x7e]+)", line)
        if header is None or len(content) > _MOST_HEADERS_BYTES:
            raise UsageError(f"{path}: write each header as `Name: value` on a line")
        found[header[1]] = header[2]
    return found
