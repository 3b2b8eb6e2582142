# SPDX-License-Identifier: Apache-2.0
"""Recognises executables of Redis, and finds their versions."""

from __future__ import annotations

import re
from itertools import islice

from qjoule.servers.elf import Executable
from qjoule.servers.strings import FOUND_MAX, is_whole
from qjoule.servers.support import Identified

_BANNER = b"Redis version=%s, bits=%d"  # server.c; forks contain their own name instead
_VERSION = re.compile(rb"[2-9]\.\d{1,2}\.\d{1,3}")
_BYTES_MAX = 8 << 20  #: it has one


def identify(executable: Executable) -> Identified | None:
    return identify_by(executable, _BANNER, "redis")


def identify_by(executable: Executable, banner: bytes, flavour: str) -> Identified | None:
    """Recognises an executable with this banner as Redis or as a fork of it.

    Its command table lists since which version each command exists. The newest is its version.
    """
    strings = executable.constants()
    if banner not in strings:
        return None
    some = strings[:_BYTES_MAX]
    since = [
        tuple(map(int, found[0].split(b".")))
        for found in islice(_VERSION.finditer(some), FOUND_MAX)
        if is_whole(some, *found.span())
    ]
    return Identified(flavour, ".".join(map(str, max(since))) if since else "")
