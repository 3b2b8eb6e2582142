"""What a server's thread or process does, by its name or title."""

from __future__ import annotations

import re

#: At the end, or after what is no letter. A number inside a name is part of it: `G1 Main Marker`,
#: `C2 CompilerThre`.
_NUMBER = re.compile(r"(?<![A-Za-z0-9])[0-9]+(?![A-Za-z])|[0-9]+$")


def thread_role(comm: str, process_comm: str) -> str:
    """`worker-12` and `worker-7` are `worker-?`.

    A thread that is called as its process is (the main thread, or one that nobody named) keeps
    that name, for numbers in it are of a version: `python3.11`.
    """
    return comm if comm == process_comm else _NUMBER.sub("?", comm)


#: miscadmin.h's BackendType and the titles that PostgreSQL 13 to 18 give (GetBackendTypeDesc,
#: utils/init/miscinit.c; replication/logical/launcher.c), to names of at most 15 bytes, as threads
#: have. The longer of two that begin alike comes first.
_POSTGRES_ROLES = (
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
#: `postgres: `, and the cluster's name (`cluster_name`), which Debian sets: `15/main: `.
_POSTGRES_TITLE = re.compile(r"postgres: (?:(?P<cluster>[^ ]*): )?(?P<rest>.*)", re.DOTALL)
#: User, database, and where the client is: `[local]` or `host(port)`.
_POSTGRES_CLIENT = re.compile(r" (?:\[local\]|[^ ]+\([0-9]+\))(?: |$)")


def postgres_role(title: str) -> str:
    """What a PostgreSQL process says it does (`postgres: checkpointer`), in at most 15 characters.

    Empty for what is not such a title, as the main process's command line, or a child's before it
    has one. A name that no version of PostgreSQL gives itself is an extension's background worker,
    and shown as it is; those of users and databases are not shown: `backend`.
    """
    match = _POSTGRES_TITLE.match(title)
    if match is None:
        return ""
    rest = match["rest"].strip()
    if rest.startswith("walsender "):  # has a client, too
        return "walsender"
    if _POSTGRES_CLIENT.search(rest):
        return "backend"
    for known, role in _POSTGRES_ROLES:
        if rest.startswith(known):
            return role
    printable = "".join(character for character in rest if character.isprintable())
    return printable.encode("ascii", "replace")[:15].decode()


#: Of one word each: a name with a space could pass for several.
_POSTGRES_SESSION = re.compile(
    r"(?P<user>[^ ]+) (?P<database>[^ ]+)(?P<client> (?:\[local\]|[^ ]+\([0-9]+\)))(?: |$)"
)


def postgres_session(title: str) -> tuple[str, str] | None:
    """User and database of the client that a PostgreSQL process serves; None: not certain.

    Databases and users may have any name, also one that looks like the rest of a title: where there
    seem to be two clients, or more words than names, nothing is said.
    """
    match = _POSTGRES_TITLE.match(title)
    if match is None or match["rest"].startswith("walsender "):
        return None
    if len(_POSTGRES_CLIENT.findall(title)) != 1:
        return None
    session = _POSTGRES_SESSION.match(match["rest"])
    return (session["user"], session["database"]) if session else None
