# SPDX-License-Identifier: Apache-2.0
"""Reads the names of a PostgreSQL session from its first message, from the title of its process,
and from statements that set the application name.

StartupMessage: PostgreSQL manual, "Message Formats".
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

from qjoule.servers.startup import RESET, Fields, ShortMessage, Startup, note

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
    """The application name that a PostgreSQL statement sets; `RESET`; or None: it sets none.

    Of several statements the last one counts. SET LOCAL is ignored, since it holds only for a
    transaction. If the statement was cut, its missing end is ignored, too. Never raises.
    """
    name: str | None = None
    statement = statement.rstrip(b"\0")
    at = 0
    while found := _SET_APPLICATION.search(statement, at):
        at = found.end() - found[0].endswith(b";")  # the semicolon also begins the next match
        value = found["quoted"]
        word = (found["word"] or b"").lower()
        if found["reset"] or (value is None and word == b"default"):
            name = RESET
        else:
            plain = word if value is None else value.replace(b"''", b"'")
            name = application_name(plain) or RESET
        if at >= len(statement):
            break
    return name


def application_name(name: bytes) -> str | None:
    """The name as the server stores it: printable ASCII (check_application_name(), utils/misc).
    None: none.
    """
    name = name[:_APPLICATION_BYTES]
    return "".join(chr(byte) if 32 <= byte < 127 else "?" for byte in name) or None


def renamed(name: bytes) -> str:
    """The application's new name; "": none."""
    return application_name(name) or ""


def first_message(message: bytes) -> Startup:
    """The names in a StartupMessage, from its length on. Never raises."""
    found: dict[str, Any] = {}
    with suppress(ShortMessage):
        _parameters(Fields(message), found)
    return Startup(**found)


def names_of_title(message: bytes) -> Startup:
    """User and database, each with a NUL, as `qjoule.stream.process_titles` takes them from the
    title of a process whose login was not seen. Never raises.
    """
    found: dict[str, Any] = {}
    fields = Fields(message)
    with suppress(ShortMessage):
        note(found, "user", fields.cstring())
        note(found, "database", fields.cstring())
    return Startup(**found)


def _parameters(fields: Fields, found: dict[str, Any]) -> None:
    fields.take(4)  # length
    if fields.uint(4, "big") >> 16 != _PROTOCOL_3:
        return  # request for TLS, GSS or cancellation
    names = {b"user": "user", b"database": "database", b"application_name": "application"}
    while key := fields.cstring():
        value = fields.cstring()
        if key in names:
            note(found, names[key], value)
    if "user" in found:  # the manual: the database name defaults to the user name
        found.setdefault("database", found["user"])
