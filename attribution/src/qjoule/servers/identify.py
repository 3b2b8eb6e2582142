"""Which database server an executable is, by what is inside it: names are borrowed and changed."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

from qjoule.servers.elf import Executable
from qjoule.servers.types import Flavour

_MARIADB = re.compile(
    rb"\0(\d{1,2}\.\d{1,2}\.\d{1,3})-[0-9A-Za-z.+~-]*MariaDB|"
    rb"\0(\d{1,2}\.\d{1,2}\.\d{1,3})-MariaDB"
)
_MYSQL = re.compile(rb"(?:mysql-|MySQL |percona-server-)(\d{1,2}\.\d{1,2}\.\d{1,3})[^\d.]")
_POSTGRES = re.compile(rb"\0PostgreSQL (\d{2}(?:\.\d{1,3})?)[^\d.]")

#: Names of options, in every mongod since 2.6 and in no mongos.
_MONGODB = (b"storage.dbPath", b"systemLog.destination")
_FERRETDB = b"github.com/FerretDB/FerretDB/"

_REDIS = b"Redis version=%s, bits=%d"  # server.c; its forks spell their own name
_REDIS_VERSION = re.compile(rb"\0([2-9]\.\d{1,2}\.\d{1,3})(?=\0)")


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
        versions = Counter(_MYSQL.findall(strings)).most_common(1)
        return Flavour.MYSQL, versions[0][0].decode() if versions else ""
    return None


def _postgres(strings: bytes) -> tuple[Flavour, str] | None:
    match = _POSTGRES.search(strings)
    return (Flavour.POSTGRES, match[1].decode()) if match else None


def _redis(strings: bytes) -> tuple[Flavour, str] | None:
    if _REDIS not in strings:
        return None
    # Its table of commands says since when there is which: none is newer than itself.
    since = [tuple(map(int, found.split(b"."))) for found in _REDIS_VERSION.findall(strings)]
    return Flavour.REDIS, ".".join(map(str, max(since))) if since else ""


def _mongodb(strings: bytes) -> tuple[Flavour, str] | None:
    """Nothing in it is certain to be its own version."""
    if all(option in strings for option in _MONGODB):
        return Flavour.MONGODB, ""
    return (Flavour.FERRETDB, "") if _FERRETDB in strings else None


def _mariadb(strings: bytes) -> tuple[Flavour, str] | None:
    match = _MARIADB.search(strings)
    return (Flavour.MARIADB, (match[1] or match[2]).decode()) if match else None
