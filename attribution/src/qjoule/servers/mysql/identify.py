# SPDX-License-Identifier: Apache-2.0
"""Recognises executables of MySQL and MariaDB, and finds their versions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from qjoule.servers.elf import Executable
from qjoule.servers.signatures import AFTER, BEFORE, NUMBER, places
from qjoule.servers.support import Identified

_MARIADB_NAME = b"MariaDB"
_MARIADB = re.compile(rb"\0(" + NUMBER + rb")-(?:[0-9A-Za-z.+~-]*)\Z")
_MYSQL_NAMES = (b"mysql-", b"MySQL ", b"percona-server-")
_MYSQL = re.compile(rb"(" + NUMBER + rb")[^\d.]")
_GROUP = b"\0mysqld-"
_SERIES = re.compile(rb"(\d{1,2}\.\d{1,2})\0")
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
        return Identified("mysql", _mysql_version(strings).decode(), certain=False)
    return None


def _mysql_version(strings: bytes) -> bytes:
    """Help texts name other versions, too. So only one of the server's own series counts, if that
    is known; without it, the one that file names and banners name most often.
    """
    series = _mysql_series(strings)
    versions = Counter(
        version
        for version in _mysql_versions(strings)
        if not series or version.startswith(series + b".")
    ).most_common(1)
    return versions[0][0] if versions else series


def _mysql_series(strings: bytes) -> bytes:
    """From the name of the option group that the server reads for its own series, as in
    `mysqld-9.7` (MYSQL_BASE_VERSION of its build); empty if there is not exactly one.
    """
    found = set()
    for position in places(strings, _GROUP):
        begins = position + len(_GROUP)
        if match := _SERIES.match(strings, begins, begins + AFTER):
            found.add(match[1])
    return found.pop() if len(found) == 1 else b""


def _mysql_versions(strings: bytes) -> Iterator[bytes]:
    for name in _MYSQL_NAMES:
        for position in places(strings, name):
            begins = position + len(name)
            if match := _MYSQL.match(strings, begins, begins + AFTER):
                yield match[1]
