# SPDX-License-Identifier: Apache-2.0
"""Recognises executables of MySQL and MariaDB, and finds their versions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from qjoule.servers.elf import Executable
from qjoule.servers.strings import AFTER, BEFORE, NUMBER, places
from qjoule.servers.support import Identified

_MARIADB_NAME = b"MariaDB"
_MARIADB = re.compile(rb"\0(" + NUMBER + rb")-(?:[0-9A-Za-z.+~-]*)\Z")
_MYSQL_NAMES = (b"mysql-", b"MySQL ", b"percona-server-")
_MYSQL = re.compile(rb"(" + NUMBER + rb")[^\d.]")
_DISPATCH = "_Z16dispatch_command"
_PLUGIN = b"mysql_native_password"  #: clients of MySQL mention it too


def identify(executable: Executable) -> Identified | None:
    """MariaDB has its version before its name. A MySQL is recognised by what every MySQL
    contains.
    """
    strings = executable.constants()
    for position in places(strings, _MARIADB_NAME):
        match = _MARIADB.search(strings[max(position - BEFORE, 0) : position])
        if match:
            return Identified("mariadb", match[1].decode())
    if executable.names_with_prefix(_DISPATCH) or _PLUGIN in strings:
        # File names and banners contain the same version; an upgrade message may contain another.
        versions = Counter(_mysql_versions(strings)).most_common(1)
        return Identified("mysql", versions[0][0].decode() if versions else "", certain=False)
    return None


def _mysql_versions(strings: bytes) -> Iterator[bytes]:
    for name in _MYSQL_NAMES:
        for position in places(strings, name):
            begins = position + len(name)
            if match := _MYSQL.match(strings, begins, begins + AFTER):
                yield match[1]
