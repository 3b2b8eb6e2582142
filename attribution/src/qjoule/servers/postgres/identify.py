# SPDX-License-Identifier: Apache-2.0
"""Recognises executables of PostgreSQL, and finds their versions."""

from __future__ import annotations

import re

from qjoule.servers.candidate import Candidate
from qjoule.servers.elf import Executable
from qjoule.servers.strings import AFTER, places
from qjoule.servers.support import Identified

_NAME = b"PostgreSQL "
_VERSION = re.compile(rb"(\d{2}(?:\.\d{1,3})?)[^\d.]")
_CHILD = b"postgres: "  #: how a child's title begins


def identify(executable: Executable) -> Identified | None:
    """By a constant that is its name and version."""
    strings = executable.constants()
    for position in places(strings, _NAME):
        begins = position + len(_NAME)
        match = _VERSION.match(strings, begins, begins + AFTER)
        if match and strings[max(position - 1, 0) : position] == b"\0":
            return Identified("postgres", match[1].decode())
    return None


def is_postmaster(candidate: Candidate) -> bool:
    """Whether it is a postmaster. A child that outlived its postmaster serves no new clients."""
    return not candidate.command_line.startswith(_CHILD)
