# SPDX-License-Identifier: Apache-2.0
"""User, database and application from the messages that begin or change a session."""

from __future__ import annotations

import struct

import pytest

from qjoule.servers import registry
from qjoule.servers.decoding import decoding_of
from qjoule.servers.mysql.startup import change_user, login
from qjoule.servers.postgres.startup import application_set, first_message
from qjoule.servers.startup import MAX_NAME_BYTES, RESET, Startup

PROTOCOL_41, CONNECT_WITH_DB, SECURE = 0x200, 0x8, 0x8000
PLUGIN, ATTRS, LENENC = 0x80000, 0x100000, 0x200000
PROGRAM = b"\x0cprogram_name\x05mysql"
TAGS = PROGRAM + b"\x0eqjoule.release\x031.4" + b"\x08qjoule.k\x01v"
PASSWORD = b"\x14" + bytes(20)


def mysql(flags: int, tail: bytes) -> bytes:
    return struct.pack("<IIB", flags | PROTOCOL_41, 1 << 24, 45) + bytes(23) + tail


def sized(block: bytes, size: int | None = None) -> bytes:
    return bytes([len(block) if size is None else size]) + block


def postgres(*pairs: bytes, code: int = 3 << 16) -> bytes:
    body = struct.pack(">I", code) + b"".join(pair + b"\0" for pair in pairs) + b"\0"
    return struct.pack(">I", len(body) + 4) + body


MYSQL_LOGIN = mysql(
    CONNECT_WITH_DB | SECURE | PLUGIN | ATTRS | LENENC,
    b"alice\0" + PASSWORD + b"shop\0mysql_native_password\0" + sized(PROGRAM),
)
CHANGE = b"bob\0" + b"\x03xyz" + b"stock\0" + struct.pack("<H", 45) + b"plugin\0" + sized(PROGRAM)
OLD_LOGIN = struct.pack("<H", CONNECT_WITH_DB) + b"\0\0\0" + b"old\0pw\0base\0"
CAROL = (b"user", b"carol", b"database", b"books")


@pytest.mark.parametrize(
    ("message", "startup"),
    [
        (MYSQL_LOGIN, Startup("alice", "shop", "mysql")),
        (mysql(SECURE, b"bob\0\x00"), Startup("bob", None)),
        (OLD_LOGIN, Startup("old", "base")),  # before 4.1
        (mysql(LENENC, b"eve\0" + b"\xfe" + b"\xff" * 8), Startup("eve")),  # a false length
    ],
)
def test_logins_of_mysql(message: bytes, startup: Startup) -> None:
    assert login(message) == startup


@pytest.mark.parametrize(
    ("message", "startup"),
    [
        (postgres(*CAROL, b"application_name", b"psql"), Startup("carol", "books", "psql")),
        (postgres(b"user", b"carol"), Startup("carol", "carol")),
        (postgres(*CAROL)[:-4], Startup("carol", None)),
        (postgres(code=80877103), Startup()),  # a request for TLS
    ],
)
def test_first_messages_of_postgresql(message: bytes, startup: Startup) -> None:
    assert first_message(message) == startup


def test_every_cut_of_a_message_is_parsed_as_far_as_it_goes() -> None:
    assert change_user(CHANGE) == Startup("bob", "stock", "mysql")
    for size in range(len(MYSQL_LOGIN)):
        startup = login(MYSQL_LOGIN[:size])
        assert startup.user in (None, "alice") and startup.database in (None, "shop")
    for size in range(len(CHANGE)):
        startup = change_user(CHANGE[:size])
        assert startup.user in (None, "bob") and startup.database in (None, "stock")


def test_tags_of_mysqls_attributes_are_all_there_or_none() -> None:
    message = mysql(ATTRS, b"alice\0\0" + sized(TAGS))
    assert login(message).tags == (("k", "v"), ("release", "1.4"))
    for size in range(len(message)):
        assert login(message[:size]).tags == ()
    odd = mysql(ATTRS, b"alice\0\0" + sized(TAGS, len(TAGS) - 3))
    assert login(odd).tags == (("release", "1.4"),)


def test_names_are_bounded_and_other_servers_have_none() -> None:
    startup = first_message(postgres(b"user", b"\xff" * 4000))
    assert startup.user is not None and len(startup.user) == MAX_NAME_BYTES
    assert decoding_of(registry.kind_of("none")).startup is None
    assert decoding_of(registry.kind_of("redis")).change is None


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        (b"set application_name = 'shop'", "shop"),
        (b"SET Application_Name='o''clock' ;", "o'clock"),
        (b"set session application_name to shop", "shop"),
        (b"set application_name to 'shop'\n\0", "shop"),
        (b"SET client_encoding='UTF8';SET application_name='shop';", "shop"),
        (b"set application_name = 'a'; set application_name = 'b'", "b"),
        (b"set application_name = 'a';" * 18, "a"),
        (b"set application_name='a'; reset all", RESET),
        (b"set application_name = ''", RESET),
        (b"set application_name = default", RESET),
        (b"reset application_name", RESET),
        (b"DISCARD ALL", RESET),
        (b"set application_name = 'sch\xc3\xb6n\x1b[2J'", "sch??n?[2J"),
        (b"set application_name = '" + b"x" * 90 + b"'", "x" * 63),
        # Not for the session, of another parameter, or cut off.
        (b"set local application_name = 'shop'", None),
        (b"set search_path to application_name", None),
        (b"set application_names = 'shop'", None),
        (b"discard plans", None),
        (b"set application_name = 'cut off", None),
        (b"set application_name = E'a\\'b'", None),
        (b"settle", None),
        (b"", None),
        # These would take long if a text were searched again and again.
        (b";" * 512, None),
        (b"set " * 128, None),
        (b" " * 512, None),
    ],
)
def test_statements_that_name_their_application(statement: bytes, name: str | None) -> None:
    assert application_set(statement) == name
