# SPDX-License-Identifier: Apache-2.0
"""Recognises executables of memcached, and finds their versions."""

from __future__ import annotations

import re

from qjoule.servers.elf import Executable
from qjoule.servers.support import Identified

_BANNER = re.compile(rb"\0memcached (1\.\d{1,2}\.\d{1,3})(?:[-_.][\w.]{1,40})?\0")  # `-V` prints it
_OPTION = b"print memcached and libevent license"  # memcached.c, usage()


def identify(executable: Executable) -> Identified | None:
    """By two texts of its own; one of them has the version."""
    strings = executable.constants()
    if _OPTION not in strings:
        return None
    found = _BANNER.search(strings)
    return Identified("memcached", found[1].decode() if found else "")
