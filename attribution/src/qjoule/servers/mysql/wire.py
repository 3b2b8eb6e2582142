# SPDX-License-Identifier: Apache-2.0
"""Decodes MySQL's and MariaDB's data: logins, and tags in attributes; says how to ask a server.

Logins: Protocol::HandshakeResponse41 and 320 (MySQL Source Code Documentation, "Connection Phase
Packets"), and COM_CHANGE_USER. Tags: attributes of queries and of connections with names
`qjoule.KEY` count; of query attributes only strings and whole numbers ("COM_QUERY", "Binary
Protocol Value").
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any

import numpy as np

from qjoule.contract import UNSEEN
from qjoule.servers.client import NamesBefore, TextsById
from qjoule.servers.decoding_types import (
    MAX_NAME_BYTES,
    DatabaseChange,
    Decoding,
    Fields,
    Language,
    ShortMessage,
    Startup,
    note,
)
from qjoule.servers.mysql.other_ids import ids_of
from qjoule.servers.mysql.plan_steps import plan_step
from qjoule.servers.registry import dialect
from qjoule.shapes.rules import Lexis
from qjoule.shapes.sql import sql_shape
from qjoule.shapes.summary import sql_summary
from qjoule.tags.definitions import MAX_TAGS, PREFIX, Tags, believed

_CONNECT_WITH_DB = 0x8
_PROTOCOL_41 = 0x200
_SECURE_CONNECTION = 0x8000
_PLUGIN_AUTH = 0x80000
_CONNECT_ATTRS = 0x100000
_PLUGIN_AUTH_LENENC = 0x200000


class _Packet(Fields):
    """A packet without its header."""

    def lenenc(self) -> int:
        """Reads a length-encoded integer (MySQL: "Integer Types")."""
        first = self.uint(1)
        widths = {0xFC: 2, 0xFD: 3, 0xFE: 8}
        return self.uint(widths[first]) if first in widths else first


def login(packet: bytes) -> Startup:
    """Reads the names in the client's answer to the server's greeting. Never raises."""
    session: dict[str, Any] = {}
    with suppress(ShortMessage):
        _login(_Packet(packet), session)
    return Startup(**session)


def change_user(packet: bytes) -> Startup:
    """Reads the names in a COM_CHANGE_USER, without its command byte. Never raises.

    The database is not found for clients older than the 4.1 protocol.
    """
    session: dict[str, Any] = {}
    fields = _Packet(packet)
    with suppress(ShortMessage):
        note(session, "user", fields.cstring())
        fields.take(fields.uint(1))  # the answer to the server's challenge
        note(session, "database", fields.cstring())
        fields.take(2)  # character set
        fields.cstring()  # authentication plugin
        _login_attributes(_Packet(fields.take(fields.lenenc())), session)
    return Startup(**session)


def program_name(name: bytes) -> str | None:
    """Decodes a program's name that the server reported. Never raises."""
    return name[:MAX_NAME_BYTES].decode("utf-8", "replace")


def _login(fields: _Packet, session: dict[str, Any]) -> None:
    flags = fields.uint(2)
    if not flags & _PROTOCOL_41:
        fields.take(3)  # largest packet
        note(session, "user", fields.cstring())
        if flags & _CONNECT_WITH_DB:
            fields.cstring()
            note(session, "database", fields.cstring())
        return
    flags |= fields.uint(2) << 16
    fields.take(4 + 1 + 23)  # largest packet, character set, filler
    note(session, "user", fields.cstring())
    if flags & _PLUGIN_AUTH_LENENC:
        fields.take(fields.lenenc())
    elif flags & _SECURE_CONNECTION:
        fields.take(fields.uint(1))
    else:
        fields.cstring()
    if flags & _CONNECT_WITH_DB:
        note(session, "database", fields.cstring())
    if flags & _PLUGIN_AUTH:
        fields.cstring()
    if flags & _CONNECT_ATTRS:
        _login_attributes(_Packet(fields.take(fields.lenenc())), session)


def _login_attributes(fields: _Packet, session: dict[str, Any]) -> None:
    """Reads attributes, until `ShortMessage` at their end."""
    attributes: list[tuple[bytes, bytes]] = []
    try:
        while True:
            key = fields.take(fields.lenenc())
            attributes.append((key, fields.take(fields.lenenc())))
    finally:
        session["tags"] = tags_of_attributes(attributes)
        for key, value in attributes:
            if key == b"program_name":
                note(session, "application", value)


# include/field_types.h
_STRINGS = {15, 252, 253, 254}  #: VARCHAR, BLOB, VAR_STRING, STRING
#: Bytes of numbers: TINY, SHORT, LONG, LONGLONG, INT24, YEAR.
_NUMBER_BYTES = {1: 1, 2: 2, 3: 4, 8: 8, 9: 4, 13: 2}
_NULL_TYPE = 6
_UNSIGNED = 0x80  #: flag in the byte after a type


@lru_cache(maxsize=4096)
def tags_in_attributes(block: bytes) -> Tags:
    """Reads tags by key, from query attributes as sent, from their count to their last value.

    Attributes with other names are left out. A value that is neither a string nor a whole number
    makes all of them unreadable.
    """
    try:
        return believed(_attributes(block))
    except IndexError:
        return ()


def tags_of_attributes(attributes: Iterable[tuple[bytes, bytes]]) -> Tags:
    """Returns tags by key, from attributes of a connection. Attributes with other names are
    ignored."""
    pairs = ((key.decode("utf-8", "replace"), value) for key, value in attributes)
    return believed(
        (key.removeprefix(PREFIX), value.decode("utf-8", "replace"))
        for key, value in pairs
        if key.startswith(PREFIX)
    )


def _attributes(block: bytes) -> Iterable[tuple[str, str]]:
    """(name, value) of each tag. Raises IndexError if the block is cut off or malformed."""
    count = block[0]
    nulls = (count + 7) // 8
    if count > MAX_TAGS or block[1] != 1 or block[2 + nulls] != 1:
        raise IndexError
    names: list[str] = []
    kinds: list[tuple[int, int]] = []
    at = 3 + nulls
    for _ in range(count):
        kinds.append((block[at], block[at + 1]))
        word, at = _counted(block, at + 2)
        names.append(word.decode("utf-8", "replace"))
    for number, (name, (kind, flags)) in enumerate(zip(names, kinds, strict=True)):
        if kind == _NULL_TYPE or block[2 + number // 8] >> number % 8 & 1:
            continue
        value, at = _value(block, at, kind, signed=not flags & _UNSIGNED)
        if name.startswith(PREFIX):
            yield name.removeprefix(PREFIX), value
    if at != len(block):
        raise IndexError


def _value(block: bytes, at: int, kind: int, *, signed: bool) -> tuple[str, int]:
    """Returns the value as text, and where it ends."""
    if kind in _STRINGS:
        data, at = _counted(block, at)
        return data.decode("utf-8", "replace"), at
    size = _NUMBER_BYTES.get(kind, len(block))
    if at + size > len(block):
        raise IndexError
    return str(int.from_bytes(block[at : at + size], "little", signed=signed)), at + size


def _counted(block: bytes, at: int) -> tuple[bytes, int]:
    """Returns a length-encoded string, and where it ends."""
    size, at = block[at], at + 1
    if size == 0xFC:
        size, at = block[at] | block[at + 1] << 8, at + 2
    elif size > 0xFA:
        raise IndexError
    if at + size > len(block):
        raise IndexError
    return block[at : at + size], at + size


KEY = struct.Struct("=IQ")  #: the session's thread, and the statement's number in the session
_STATEMENTS_MAX = 1 << 32


def key_of(text: bytes, thread: int) -> bytes | None:
    """Returns the key of the statement in a `struct qj_unseen`; None: it has no number."""
    if len(text) != UNSEEN.itemsize:
        return None
    statement = int(np.frombuffer(text, UNSEEN)[0]["statement"])
    return KEY.pack(thread, statement) if statement < _STATEMENTS_MAX else None


TEXTS = TextsById(
    ids=dialect("unseen"),
    statements=dialect("mysql"),
    key=key_of,
    module="qjoule.servers.mysql.client",
    driver="pymysql",
    view="performance_schema.prepared_statements_instances",
    by_thread=True,
)

NAMES = NamesBefore(
    module="qjoule.servers.mysql.client",
    driver="pymysql",
    view="performance_schema.session_connect_attrs",
    by_thread=True,
)


LEXIS = Lexis.BACKTICK

#: `USE`, alone or among several statements sent as one.
_USE = re.compile(r"(?:^|; *)use (.*)", re.IGNORECASE)
_NAME = re.compile(r"`((?:[^`]|``)+)` *;?|([^\s`;?]+) *;?")


def database_change(shape_text: str) -> DatabaseChange | None:
    """Returns the database of a `USE`; without a name if more than the statement's end follows."""
    used = _USE.search(shape_text)
    if used is None:
        return None
    match = _NAME.fullmatch(used[1].strip())
    if match is None:
        return DatabaseChange(None)
    return DatabaseChange(match[2] or match[1].replace("``", "`"))


LANGUAGE = Language(
    shape=partial(sql_shape, lexis=LEXIS),
    summary=partial(sql_summary, lexis=LEXIS),
    database=database_change,
    lexis=LEXIS,
    follows_rules=True,
    ids=ids_of,
)


DECODING = Decoding(
    languages={dialect("mysql"): LANGUAGE},
    tag_readers={dialect("attributes"): tags_in_attributes},
    startup=login,
    change=change_user,
    application=program_name,
    texts_by_id=TEXTS,
    names_before=NAMES,
    avoidable={
        "scan": ("rr_sequential", "TableScanIterator::Read", "handler::ha_rnd_next"),
        "spill": ("merge_many_buff", "merge_buffers", "merge_index", "my_b_flush_io_cache"),
        "width": ("select_send::send_data", "Query_result_send::send_data", "my_net_write"),
        "parsing": ("parse_sql", "MYSQLparse", "THD::sql_parser"),
    },
    plan_step=plan_step,
    collector={
        "qjoule.query.calls": "mysql.events_statements_summary_by_digest.count_star",
        "qjoule.query.duration": "mysql.events_statements_summary_by_digest.sum_timer_wait",
        "digest": "mysql.events_statements_summary_by_digest.digest",
    },
    collector_sample={"digest": "mysql.events_statements_current.digest"},
)
