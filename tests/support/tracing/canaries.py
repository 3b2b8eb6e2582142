# SPDX-License-Identifier: Apache-2.0
"""Values that only clients know, each planted in one position of a statement or of a protocol.

Where one is found again says which position leaks.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import psycopg

from qjoule.trace.reader import Trace
from qjoule.trace.schema import TABLES
from qjoule_studies.servers.process import DatabaseServer
from tracing.mysql_client import CONNECT_ATTRIBUTES, MysqlClient, MysqlError, mysql_client
from tracing.postgres_client import SYNC, execute, message, parse, postgres_client, query
from tracing.redis_client import redis_client, resp

_LONG = 4096  #: QJ_TEXT_BYTES: of a longer statement only the begin is read
_FIRST_NUMBER = 0x5CA1_AB1E_0000


class Canaries:
    """Each call plants a value that is nowhere else. Positions are named by their first use."""

    def __init__(self) -> None:
        self._position_of: dict[bytes, str] = {}

    def text(self, position: str) -> bytes:
        value = b"kanary%03dvogel" % len(self._position_of)
        self._position_of[value] = position
        return value

    def number(self, position: str) -> int:
        value = _FIRST_NUMBER + 7919 * len(self._position_of)
        self._position_of[b"%d" % value] = position
        return value

    def __len__(self) -> int:
        return len(self._position_of)

    def found_in(self, content: bytes) -> list[str]:
        """The positions whose value this contains, as it is or encoded."""
        lower = content.lower()
        return [
            position
            for value, position in self._position_of.items()
            if any(form in lower for form in _forms(value))
        ]


def _forms(value: bytes) -> Iterator[bytes]:
    yield value
    yield value.hex().encode()
    for shift in range(3):  # of base64, whatever stands before it
        encoded = base64.b64encode(bytes(shift) + value)
        yield encoded[(shift * 8 + 5) // 6 : -4].lower()
    if value.isdigit():
        for order in "<>":
            yield struct.pack(f"{order}q", int(value))
        yield b"%x" % int(value)


def in_files(canaries: Canaries, directory: Path) -> list[tuple[str, str]]:
    """(file, position) of each canary in the bytes of a directory's files."""
    files = (path for path in directory.rglob("*") if path.is_file())
    return [
        (path.name, canary) for path in files for canary in canaries.found_in(path.read_bytes())
    ]


def in_tables(canaries: Canaries, trace: Path) -> list[tuple[str, str]]:
    """(column, position) of each canary in a trace's tables, which are compressed on the disk."""
    leaks = []
    for name in TABLES:
        table = Trace(trace).table(name)
        for column in table.column_names:
            values = map(str, table.column(column).to_pylist())
            content = "\n".join(dict.fromkeys(values)).encode()
            leaks += [(f"{name}.{column}", canary) for canary in canaries.found_in(content)]
    return leaks


def plant_in_mariadb(server: DatabaseServer, canaries: Canaries) -> None:
    """In literals, comments, parameters, logins, files, procedures and broken statements."""
    text, number = canaries.text, canaries.number
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("create database if not exists m_aviary")
        cursor.execute("create or replace table m_aviary.birds (id int, name text)")
        cursor.execute(
            b"create or replace procedure m_aviary.sing(song text) "
            b"begin select '%s', song; end" % text("mariadb procedure's body")
        )
        cursor.execute(b"call m_aviary.sing('%s')" % text("mariadb argument of CALL"))
        with suppress(Exception):
            cursor.execute(b"create user m_bird identified by '%s'" % text("mariadb IDENTIFIED BY"))
        cursor.execute(b"set password for m_bird = password('%s')" % text("mariadb SET PASSWORD"))
        cursor.execute("drop user m_bird")
    attributes = {b"program_name": b"m_aviary", b"_token": text("mariadb connection attribute")}
    with mysql_client(server.socket, flags=CONNECT_ATTRIBUTES, attributes=attributes) as client:
        for statement in _mariadb_statements(canaries):
            with suppress(MysqlError):
                client.query(statement)
        _mariadb_commands(client, canaries)
        file = text("mariadb LOAD DATA's file name")
        load = b"load data local infile '%s' into table m_aviary.birds" % file
        client.load_file(load, [b"1\t%s\n" % text("mariadb LOAD DATA's rows")])
        bad = client.prepare(b"insert into m_aviary.birds values (?, ?)")
        with suppress(MysqlError):
            client.bulk_execute(bad, [number("mariadb bulk parameter")])


def _mariadb_statements(canaries: Canaries) -> Iterator[bytes]:
    text, number = canaries.text, canaries.number
    yield b"select '%s' as m_single" % text("mariadb '…'")
    yield b'select "%s" as m_double' % text('mariadb "…"')
    yield b"select 'it''s \\' %s' as m_escaped" % text("mariadb behind escaped quotes")
    yield b"select x'%s', 0x%x" % (text("mariadb x").hex().encode(), number("mariadb 0x"))
    yield b"select %d, -%d" % (number("mariadb number"), number("mariadb -number"))
    yield b"select 1 /* %s */ as m_comment" % text("mariadb /* */")
    yield b"select 1 -- %s\n as m_line" % text("mariadb --")
    yield b"select 1 /*!40000 + '%s' */ as m_version" % text("mariadb /*! */")
    yield b"select 1 where 'a' in ('b', '%s', %d)" % (text("mariadb IN"), number("mariadb IN no."))
    yield b"insert into m_aviary.birds values (1, '%s')" % text("mariadb row")
    yield b"prepare m_p from 'select ''%s'' , ?'" % text("mariadb PREPARE FROM")
    yield b"execute m_p using '%s'" % text("mariadb EXECUTE USING")
    yield b"execute immediate 'select ''%s'''" % text("mariadb EXECUTE IMMEDIATE")
    yield b"select 1; select '%s'" % text("mariadb second statement")
    yield b"selekt '%s'" % text("mariadb unknown word")
    yield b"select '%s" % text("mariadb unfinished '")
    yield from _long_statements("mariadb", canaries)


def _mariadb_commands(client: MysqlClient, canaries: Canaries) -> None:
    prepared = client.prepare(b"select ? as m_prepared, '%s'" % canaries.text("mariadb prepared"))
    client.execute(prepared, canaries.number("mariadb parameter"))
    client.long_data(prepared, 0, canaries.text("mariadb long data"))
    client.execute_long(prepared)


def plant_in_postgres(server: DatabaseServer, canaries: Canaries) -> None:
    """In literals, comments, parameters, passwords, copied rows and broken statements."""
    text, number = canaries.text, canaries.number
    with postgres_client(server.port) as client:
        for statement in _postgres_statements(canaries):
            client.exchange(query(statement))
        parsed = parse(b"select $1::text as m_parsed, '%s'" % text("postgres Parse"))
        client.exchange(parsed, SYNC)
        client.exchange(
            parse(b"select $1::text, $2::bigint as m_bound"),
            _bind(text("postgres text parameter"), number("postgres binary parameter")),
            *(execute(), SYNC),
        )
    address = f"host=127.0.0.1 port={server.port} user=postgres dbname=postgres"
    with psycopg.connect(address, autocommit=True) as connection:
        with connection.cursor() as cursor, cursor.copy("copy m_birds from stdin") as copy:
            copy.write(b"1\t%s\n" % text("postgres COPY's rows"))
        connection.execute("drop table m_birds")
    with suppress(psycopg.Error):  # asks for a password wherever the server wants one
        psycopg.connect(f"{address} password={text('postgres password').decode()}").close()


def _postgres_statements(canaries: Canaries) -> Iterator[bytes]:
    text, number = canaries.text, canaries.number
    yield b"create table if not exists m_birds (id int, name text)"
    yield b"select '%s' as m_single" % text("postgres '…'")
    yield b"select E'it\\'s %s', U&'%s'" % (text("postgres E'…'"), text("postgres U&'…'"))
    yield b"select $$%s$$, $m$ ' %s $m$" % (text("postgres $$"), text("postgres $m$"))
    yield b"select %d, -%d" % (number("postgres number"), number("postgres -number"))
    yield b"select 1 /* a /* %s */ %s */" % (text("postgres /* /* */"), text("postgres /* */ */"))
    yield b"select 1 -- %s\n as m_line" % text("postgres --")
    yield b"insert into m_birds values (1, '%s')" % text("postgres row")
    yield b"alter role postgres password '%s'" % text("postgres ALTER ROLE")
    yield b"alter role postgres password null"
    yield b"do $m$ begin perform '%s'; end $m$" % text("postgres DO")
    yield b"prepare m_p (text) as select $1, '%s'" % text("postgres PREPARE")
    yield b"execute m_p ('%s')" % text("postgres EXECUTE")
    yield b"set application_name = 'm_app'; select '%s'" % text("postgres second statement")
    yield b"select '%s" % text("postgres unfinished '")
    yield from _long_statements("postgres", canaries)


def _long_statements(server: str, canaries: Canaries) -> Iterator[bytes]:
    for offset in (-20, -8, 0, 5000):  # before, across and behind what is read of it
        value = canaries.text(f"{server} long statement, {offset} bytes behind its end")
        yield b"select '%s'" % value.rjust(_LONG + offset + len(value) // 2, b".")


def _bind(first: bytes, second: int) -> bytes:
    values = struct.pack(">I", len(first)) + first + struct.pack(">Iq", 8, second)
    return message("B", b"\0\0" + struct.pack(">HHHH", 2, 0, 1, 2) + values + struct.pack(">H", 0))


def plant_in_redis(server: DatabaseServer, canaries: Canaries) -> None:
    """In values, fields, passwords, scripts, channels' messages and inline commands."""
    text, number = canaries.text, canaries.number
    sent = [
        (b"SET", b"m:bird", text("redis value")),
        (b"SET", b"m:bird:%d" % number("redis number in a key"), b"1"),
        (b"HSET", b"m:hash", b"field", text("redis value of a hash")),
        (b"EVAL", b"return '%s'" % text("redis script"), b"0", text("redis ARGV")),
        (b"AUTH", b"default", text("redis AUTH with a user")),
        (b"HELLO", b"3", b"AUTH", b"default", text("redis HELLO AUTH")),
        (b"ACL", b"SETUSER", b"m_bird", b">" + text("redis ACL SETUSER")),
        (b"ACL", b"DELUSER", b"m_bird"),
        (b"PUBLISH", b"m:news", text("redis message")),
        (b"SET", b"m:long", text("redis long value") * 1000),
        (b"APPEND", b"m:bird"),
    ]
    with redis_client(server.port) as client:
        for command in sent:
            client.ask(resp(*command))
        client.ask(b"SET m:inline %s\r\n" % text("redis inline"))
