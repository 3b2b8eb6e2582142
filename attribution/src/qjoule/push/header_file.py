# SPDX-License-Identifier: Apache-2.0
"""Reads the file of headers that are sent to a receiver of metrics."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from qjoule.errors import UsageError

_MOST_HEADERS_BYTES = 64 << 10


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
