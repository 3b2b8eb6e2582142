"""Which database server an executable is, by what is inside it: names are borrowed and changed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice

from qjoule.servers.elf import Executable
from qjoule.servers.types import Flavour

_NUMBER = rb"\d{1,2}\.\d{1,2}\.\d{1,3}"
#: What is searched for, and how the text from `_BEFORE` bytes before it on has to look. Searching
#: for a plain word takes a tenth of a second in 100 MB, whatever is in there; a pattern, minutes.
_MARIADB_NAME = b"MariaDB"
_MARIADB = re.compile(rb"\0(" + _NUMBER + rb")-(?:[0-9A-Za-z.+~-]*)\Z")
_MYSQL_NAMES = (b"mysql-", b"MySQL ", b"percona-server-")
_MYSQL = re.compile(rb"(" + _NUMBER + rb")[^\d.]")
_POSTGRES_NAME = b"PostgreSQL "
_POSTGRES = re.compile(rb"(\d{2}(?:\.\d{1,3})?)[^\d.]")
_BEFORE, _AFTER = 96, 24
_FOUND_MAX = 100_000  #: occurrences that are looked at: a server has some hundreds

#: Names of options, in every mongod since 2.6 and in no mongos.
_MONGODB = (b"storage.dbPath", b"systemLog.destination")
_FERRETDB = b"github.com/FerretDB/FerretDB/"

_REDIS = b"Redis version=%s, bits=%d"  # server.c; its forks spell their own name
_REDIS_VERSION = re.compile(rb"[2-9]\.\d{1,2}\.\d{1,3}")
_REDIS_BYTES_MAX = 8 << 20  #: it has one


@lru_cache(maxsize=8)
def identify(executable: Executable) -> tuple[Flavour, str] | None:
    """(flavour, version), None when it is no database server that qjoule knows.

    The version is "" where the executable does not spell it out.
    """
    strings = executable.constants()
    for recognise in (_postgres, _redis, _mongodb, _mariadb):
        if found := recognise(strings):
            return found
    if executable.names_with_prefix("_Z16dispatch_command") or b"mysql_native_password" in strings:
        # Names of source files and banners agree on the version; an upgrade message may not.
        versions = Counter(_mysql_versions(strings)).most_common(1)
        return Flavour.MYSQL, versions[0][0].decode() if versions else ""
    return None


def _mysql_versions(strings: bytes) -> Iterator[bytes]:
    for name in _MYSQL_NAMES:
        for position in _places(strings, name):
            begins = position + len(name)
            if match := _MYSQL.match(strings, begins, begins + _AFTER):
                yield match[1]


def _postgres(strings: bytes) -> tuple[Flavour, str] | None:
    for position in _places(strings, _POSTGRES_NAME):
        begins = position + len(_POSTGRES_NAME)
        match = _POSTGRES.match(strings, begins, begins + _AFTER)
        if match and strings[max(position - 1, 0) : position] == b"\0":
            return Flavour.POSTGRES, match[1].decode()
    return None


def _redis(strings: bytes) -> tuple[Flavour, str] | None:
    if _REDIS not in strings:
        return None
    # Its table of commands says since when there is which: none is newer than itself.
    some = strings[:_REDIS_BYTES_MAX]
    since = [
        tuple(map(int, found[0].split(b".")))
        for found in islice(_REDIS_VERSION.finditer(some), _FOUND_MAX)
        if _is_whole(some, *found.span())
    ]
    return Flavour.REDIS, ".".join(map(str, max(since))) if since else ""


def _is_whole(strings: bytes, begins: int, ends: int) -> bool:
    """Between zeros."""
    return strings[max(begins - 1, 0) : begins] == strings[ends : ends + 1] == b"\0"


def _mongodb(strings: bytes) -> tuple[Flavour, str] | None:
    """Nothing in it is certain to be its own version."""
    if all(option in strings for option in _MONGODB):
        return Flavour.MONGODB, ""
    return (Flavour.FERRETDB, "") if _FERRETDB in strings else None


def _mariadb(strings: bytes) -> tuple[Flavour, str] | None:
    for position in _places(strings, _MARIADB_NAME):
        match = _MARIADB.search(strings[max(position - _BEFORE, 0) : position])
        if match:
            return Flavour.MARIADB, match[1].decode()
    return None


def _places(strings: bytes, name: bytes) -> Iterator[int]:
    position = strings.find(name)
    for _ in range(_FOUND_MAX):
        if position < 0:
            return
        yield position
        position = strings.find(name, position + len(name))
