# SPDX-License-Identifier: Apache-2.0
"""Decodes PostgreSQL's data: a session's names, process titles, and queryids.

A session's names are in its first message (StartupMessage: PostgreSQL manual, "Message Formats"),
in the title that a process shows as its command line, and in statements that set the application
name.

pg_stat_statements and pg_stat_activity identify a statement by its queryid. PostgreSQL computes it
from the parse tree with the numbers of tables and types, so a text is not enough. The kernel side
reads it where the server reports it (bpf/postgres/prepared.bpf.c).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from qjoule.contract import TOLD_ID
from qjoule.servers.decoding_types import (
    RESET,
    Build,
    Decoding,
    Fields,
    Language,
    ShortMessage,
    Startup,
    Titles,
    note,
)
from qjoule.servers.registry import dialect
from qjoule.shapes.rules import Lexis
from qjoule.shapes.shape import OtherId
from qjoule.shapes.sql import sql_shape
from qjoule.shapes.summary import sql_summary

_PROTOCOL_3 = 3
_SET_APPLICATION = re.compile(
    rb"""(?: ^ | ; ) \s* (?:
        set \s+ (?: session \s+ )? application_name \s* (?: = | \s to \s )
        \s* (?: '(?P<quoted> (?: [^'\\] | '' )* )' | (?P<word> [a-z_][\w$]* ) )
        | (?P<reset> reset \s+ (?: application_name | all ) | discard \s+ all )
    ) \s* (?: ; | $ )""",
    re.IGNORECASE | re.VERBOSE,
)
#: NAMEDATALEN - 1: the server cuts the name there.
_APPLICATION_BYTES = 63


def application_set(statement: bytes) -> str | None:
    """Returns the application name that a statement sets; `RESET`; None: it sets none.

    Of several statements the last one counts. SET LOCAL is ignored, since it holds only for a
    transaction. If the statement was cut, its missing end is ignored, too. Never raises.
    """
    name: str | None = None
    statement = statement.rstrip(b"\0")
    at = 0
    while match := _SET_APPLICATION.search(statement, at):
        at = match.end() - match[0].endswith(b";")  # the semicolon also begins the next match
        value = match["quoted"]
        word = (match["word"] or b"").lower()
        if match["reset"] or (value is None and word == b"default"):
            name = RESET
        else:
            plain = word if value is None else value.replace(b"''", b"'")
            name = application_name(plain) or RESET
        if at >= len(statement):
            break
    return name


def application_name(name: bytes) -> str | None:
    """Returns the name as the server stores it: printable ASCII (check_application_name(),
    utils/misc); None: none."""
    name = name[:_APPLICATION_BYTES]
    return "".join(chr(byte) if 32 <= byte < 127 else "?" for byte in name) or None


def renamed(name: bytes) -> str:
    """Returns the application's new name; "": none."""
    return application_name(name) or ""


def first_message(message: bytes) -> Startup:
    """Reads the names in a StartupMessage, from its length on. Never raises."""
    session: dict[str, Any] = {}
    with suppress(ShortMessage):
        _parameters(Fields(message), session)
    return Startup(**session)


def names_of_title(message: bytes) -> Startup:
    """Reads user and database, each with a NUL, as `qjoule.stream.process_titles` takes them from
    the title of a process whose login was not seen. Never raises."""
    session: dict[str, Any] = {}
    fields = Fields(message)
    with suppress(ShortMessage):
        note(session, "user", fields.cstring())
        note(session, "database", fields.cstring())
    return Startup(**session)


def _parameters(fields: Fields, session: dict[str, Any]) -> None:
    fields.take(4)  # length
    if fields.uint(4, "big") >> 16 != _PROTOCOL_3:
        return  # request for TLS, GSS or cancellation
    names = {b"user": "user", b"database": "database", b"application_name": "application"}
    while key := fields.cstring():
        value = fields.cstring()
        if key in names:
            note(session, names[key], value)
    if "user" in session:  # the manual: the database name defaults to the user name
        session.setdefault("database", session["user"])


#: Role of a process that serves a client.
WITH_CLIENT = "backend"
#: Titles of PostgreSQL 13 to 18 (miscadmin.h, BackendType; GetBackendTypeDesc, utils/init/
#: miscinit.c; replication/logical/launcher.c), to names of at most 15 bytes, like threads'. Of two
#: that begin alike, the longer comes first.
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
#: Prefix `postgres: `, and the cluster's name (`cluster_name`) if set, as on Debian: `15/main: `.
_TITLE = re.compile(r"postgres: (?:(?P<cluster>[^ ]*): )?(?P<rest>.*)", re.DOTALL)
#: User, database, and the client's place: `[local]` or `host(port)`.
_CLIENT = re.compile(r" (?:\[local\]|[^ ]+\([0-9]+\))(?: |$)")


def role_of_title(title: str) -> str:
    """Returns the role in a process's title (`postgres: checkpointer`), at most 15 characters.

    Empty if it is no such title, as for the main process, or for a child without one yet. A name
    that no PostgreSQL version uses belongs to an extension's background worker and is shown
    unchanged. Titles with users and databases become `WITH_CLIENT`.
    """
    match = _TITLE.match(title)
    if match is None:
        return ""
    rest = match["rest"].strip()
    if rest.startswith("walsender "):  # a walsender has a client, too
        return "walsender"
    if _CLIENT.search(rest):
        return WITH_CLIENT
    for prefix, role in _ROLES:
        if rest.startswith(prefix):
            return role
    printable = "".join(character for character in rest if character.isprintable())
    return printable.encode("ascii", "replace")[:15].decode()


#: Names of one word each, since a name with a space could look like several.
_SESSION = re.compile(
    r"(?P<user>[^ ]+) (?P<database>[^ ]+)(?P<client> (?:\[local\]|[^ ]+\([0-9]+\)))(?: |$)"
)


def session_of_title(title: str) -> tuple[str, str] | None:
    """Returns user and database of the client that a process serves; None: uncertain.

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


QUERY_ID = "pg_queryid"
_OF = "pg_stat_statements"
_SIGN = 1 << 63
_NOT_TOLD = (
    "the server has not reported one: it computes ids for pg_stat_statements or with "
    "compute_query_id = on"
)


def query_id(text: bytes) -> tuple[int, OtherId] | None:
    """Returns the shape and its queryid, a signed number as in PostgreSQL's views."""
    if len(text) != TOLD_ID.itemsize:
        return None
    shape, number = np.frombuffer(text, TOLD_ID)[0].tolist()
    return shape, OtherId(QUERY_ID, str(number - 2 * _SIGN if number >= _SIGN else number), _OF)


def ids_of(_text: bytes, _truncated: bool, _rules: int, _build: Build) -> Iterator[OtherId]:
    """Yields the note that holds until the server has reported the queryid."""
    yield OtherId(QUERY_ID, None, _OF, _NOT_TOLD)


LANGUAGE = Language(
    shape=partial(sql_shape, lexis=Lexis.STANDARD),
    summary=partial(sql_summary, lexis=Lexis.STANDARD),
    lexis=Lexis.STANDARD,
    follows_rules=True,
    ids=ids_of,
)


DECODING = Decoding(
    languages={dialect("postgres"): LANGUAGE},
    reported_ids={dialect("postgres-query-id"): query_id},
    startup=first_message,
    change=names_of_title,
    application_set=application_set,
    application=renamed,
    titles=Titles(role_of_title, session_of_title, WITH_CLIENT),
    avoidable={
        "scan": ("ExecSeqScan", "heap_getnextslot"),
        "spill": ("mergeruns", "dumptuples", "LogicalTapeWrite", "LogicalTapeRead", "BufFileWrite"),
        "width": ("OutputFunctionCall", "SendFunctionCall", "pg_detoast_datum"),
        "parsing": (
            *("raw_parser", "parse_analyze", "pg_analyze_and_rewrite"),  # until 14
            *("pg_analyze_and_rewrite_fixedparams", "pg_analyze_and_rewrite_varparams"),
        ),
        "parallel": (
            *("StartBackgroundWorker", "BackgroundWorkerMain", "ParallelWorkerMain"),  # 16, 17
            *("ExecInitParallelPlan", "LaunchParallelWorkers", "WaitForParallelWorkersToFinish"),
            *("DestroyParallelContext", "shm_mq_send", "shm_mq_sendv", "shm_mq_receive"),
        ),
    },
    executes=("standard_ExecutorRun",),
    collector={
        "qjoule.query.calls": "postgresql.calls",
        "qjoule.query.rows": "postgresql.rows",
        "qjoule.query.duration": "postgresql.total_exec_time",
        "queryid": "postgresql.queryid",
    },
    collector_sample={
        "queryid": "postgresql.query_id",
        "qjoule.application": "postgresql.application_name",
    },
)
