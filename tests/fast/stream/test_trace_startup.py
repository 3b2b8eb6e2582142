# SPDX-License-Identifier: Apache-2.0
"""User and database from the first message of a connection."""

from __future__ import annotations

import struct

import pytest

from qjoule.servers import registry
from qjoule.servers.decoding import decoding_of
from qjoule.servers.mysql.startup import change_user, login
from qjoule.servers.postgres.startup import application_set, first_message
from qjoule.servers.startup import MAX_NAME_BYTES, RESET, Startup

PROTOCOL_41 = 0x200
CONNECT_WITH_DB = 0x8
SECURE = 0x8000
PLUGIN = 0x80000
ATTRS = 0x100000
LENENC = 0x200000


def mysql(flags: int, tail: bytes) -> bytes:
    return struct.pack("<IIB", flags | PROTOCOL_41, 1 << 24, 45) + bytes(23) + tail


def postgres(*pairs: bytes, code: int = 3 << 16) -> bytes:
    body = struct.pack(">I", code) + b"".join(pair + b"\0" for pair in pairs) + b"\0"
    return struct.pack(">I", len(body) + 4) + body


def test_mysql_with_everything() -> None:
    attributes = b"\x0cprogram_name\x05mysql"
    tail = b"alice\0" + b"\x14" + bytes(20) + b"shop\0mysql_native_password\0"
    tail += bytes([len(attributes)]) + attributes
    flags = CONNECT_WITH_DB | SECURE | PLUGIN | ATTRS | LENENC
    found = login(mysql(flags, tail))
    assert found == Startup("alice", "shop", "mysql")


def test_mysql_s_tags_are_all_there_or_none() -> None:
    attributes = b"\x0cprogram_name\x05mysql" + b"\x0eqjoule.release\x031.4" + b"\x08qjoule.k\x01v"
    message = mysql(ATTRS, b"alice\0\0" + bytes([len(attributes)]) + attributes)
    found = login(message)
    assert found.tags == (("k", "v"), ("release", "1.4"))
    for size in range(len(message)):
        assert login(message[:size]).tags == ()
    odd = mysql(ATTRS, b"alice\0\0" + bytes([len(attributes) - 3]) + attributes)
    assert login(odd).tags == (("release", "1.4"),)


def test_mysql_without_database() -> None:
    found = login(mysql(SECURE, b"bob\0\x00"))
    assert found == Startup("bob", None)


def test_mysql_before_4_1() -> None:
    body = struct.pack("<H", CONNECT_WITH_DB) + b"\0\0\0" + b"old\0pw\0base\0"
    assert login(body) == Startup("old", "base")


def test_postgres() -> None:
    message = postgres(b"user", b"carol", b"database", b"books", b"application_name", b"psql")
    assert first_message(message) == Startup("carol", "books", "psql")


def test_postgres_database_defaults_to_the_user() -> None:
    whole = postgres(b"user", b"carol")
    assert first_message(whole) == Startup("carol", "carol")
    cut = postgres(b"user", b"carol", b"database", b"books")[:-4]
    assert first_message(cut) == Startup("carol", None)


def test_tls_request_says_nothing() -> None:
    assert first_message(postgres(code=80877103)) == Startup()


def test_every_cut_is_parsed_as_far_as_it_goes() -> None:
    tail = b"alice\0" + b"\x14" + bytes(20) + b"shop\0"
    message = mysql(CONNECT_WITH_DB | SECURE, tail)
    for size in range(len(message)):
        found = login(message[:size])
        assert found.user in (None, "alice")
        assert found.database is None
    assert login(message).database == "shop"


def test_names_are_bounded_and_always_text() -> None:
    found = first_message(postgres(b"user", b"\xff" * 4000))
    assert found.user is not None
    assert len(found.user) == MAX_NAME_BYTES


def test_a_length_beyond_the_message_is_no_allocation() -> None:
    tail = b"eve\0" + b"\xfe" + b"\xff" * 8
    assert login(mysql(LENENC, tail)) == Startup("eve")


def test_another_kind_of_server_has_no_names() -> None:
    assert decoding_of(registry.kind_of("none")).startup is None


def test_every_cut_of_a_change_of_user_is_parsed_as_far_as_it_goes() -> None:
    attributes = b"\x0cprogram_name\x05mysql"
    message = b"bob\0" + b"\x03xyz" + b"stock\0" + struct.pack("<H", 45) + b"plugin\0"
    message += bytes([len(attributes)]) + attributes
    assert change_user(message) == Startup("bob", "stock", "mysql")
    assert decoding_of(registry.kind_of("redis")).change is None
    for size in range(len(message)):
        found = change_user(message[:size])
        assert found.user in (None, "bob")
        assert found.database in (None, "stock")


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        (b"set application_name = 'shop'", "shop"),
        (b"SET Application_Name='o''clock' ;", "o'clock"),
        (b"set session application_name to shop", "shop"),
        (b"set application_name to 'shop'\n\0", "shop"),
        (b"SET client_encoding='UTF8';SET application_name='shop';", "shop"),
        (b"set application_name = 'a'; set application_name = 'b'", "b"),
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
    ],
)
def test_names_that_applications_give_themselves(statement: bytes, name: str | None) -> None:
    assert application_set(statement) == name


def test_many_names_in_one_statement_take_no_time() -> None:
    assert application_set(b"set application_name = 'a';" * 18) == "a"
    for hostile in (
        b";" * 512,
        b"set " * 128,
        b"set application_name = '" + b"'" * 480,
        b" " * 512,
    ):
        assert not (application_set(hostile) or "").strip("'")
