# SPDX-License-Identifier: Apache-2.0
"""Reads what a PostgreSQL process does, and for whom, from the title in place of its command
line.
"""

from __future__ import annotations

import re

#: The role of a process that serves a client.
WITH_CLIENT = "backend"
#: miscadmin.h's BackendType and the titles that PostgreSQL 13 to 18 give (GetBackendTypeDesc,
#: utils/init/miscinit.c; replication/logical/launcher.c), to names of at most 15 bytes, as threads
#: have. The longer of two that begin alike comes first.
_ROLES = (
    ("autovacuum launcher", "autovac launch"),
    ("autovacuum worker", "autovac worker"),
    ("background writer", "bgwriter"),
    ("checkpointer", "checkpointer"),
    ("walwriter", "walwriter"),
    ("walreceiver", "walreceiver"),
    ("walsender", "walsender"),
    ("walsummarizer", "walsummarizer"),
    ("archiver", "archiver"),
    ("startup", "startup"),
    ("logger", "logger"),
    ("stats collector", "stats collector"),
    ("slotsync worker", "slotsync worker"),
    ("io worker", "io worker"),
    ("parallel worker", "parallel worker"),
    ("logical replication launcher", "logical launch"),
    ("logical replication parallel apply worker", "apply worker"),
    ("logical replication apply worker", "apply worker"),
    ("logical replication worker", "apply worker"),
    ("logical replication tablesync worker", "tablesync"),
)
#: `postgres: `, and the cluster's name (`cluster_name`) if set, as on Debian: `15/main: `.
_TITLE = re.compile(r"postgres: (?:(?P<cluster>[^ ]*): )?(?P<rest>.*)", re.DOTALL)
#: User, database, and where the client is: `[local]` or `host(port)`.
_CLIENT = re.compile(r" (?:\[local\]|[^ ]+\([0-9]+\))(?: |$)")


def role_of_title(title: str) -> str:
    """The role in a PostgreSQL process's title (`postgres: checkpointer`), at most 15 characters.

    Empty if it is no such title, as for the main process, or for a child that has none yet. A name
    that no PostgreSQL version uses itself belongs to an extension's background worker and is shown
    unchanged. Titles with users and databases are not shown but become `WITH_CLIENT`.
    """
    match = _TITLE.match(title)
    if match is None:
        return ""
    rest = match["rest"].strip()
    if rest.startswith("walsender "):  # it has a client, too
        return "walsender"
    if _CLIENT.search(rest):
        return WITH_CLIENT
    for known, role in _ROLES:
        if rest.startswith(known):
            return role
    printable = "".join(character for character in rest if character.isprintable())
    return printable.encode("ascii", "replace")[:15].decode()


#: Names of one word each, since a name with a space could look like several.
_SESSION = re.compile(
    r"(?P<user>[^ ]+) (?P<database>[^ ]+)(?P<client> (?:\[local\]|[^ ]+\([0-9]+\)))(?: |$)"
)


def session_of_title(title: str) -> tuple[str, str] | None:
    """User and database of the client that a PostgreSQL process serves; None: uncertain.

    Databases and users may have any name, even one that looks like the rest of a title. If there
    seem to be two clients, or more words than names, the result is None.
    """
    match = _TITLE.match(title)
    if match is None or match["rest"].startswith("walsender "):
        return None
    if len(_CLIENT.findall(title)) != 1:
        return None
    session = _SESSION.match(match["rest"])
    return (session["user"], session["database"]) if session else None
