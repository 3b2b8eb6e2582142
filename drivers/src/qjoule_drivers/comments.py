# SPDX-License-Identifier: Apache-2.0
"""Tags in a comment inside the statement, for servers on other hosts. Opt-in, for named keys only.

Format: sqlcommenter (https://google.github.io/sqlcommenter/spec/): `/*key='value',key2='value2'*/`
at the end, keys and values percent-encoded and sorted. Percent-encoding leaves only letters, digits
and `-_.~`, so no value can end the comment or its string. Each different value makes a different
statement text for statement caches, so name keys with few values.

Tags that a connection carries, also opt-in and for named keys only:

When it is opened: servers store a client's name or attributes, which adds nothing to each
statement: `application_name` in PostgreSQL, connection attributes in MySQL, a client's name in
Redis. The value dates from when the connection was opened, and a pool lends connections to all
kinds of work. So name keys that hold for a process, such as a release or a job.

In front of a statement: MySQL query attributes (8.0.23), for servers that support them. They leave
its text unchanged, so a cache or a prepared statement sees the same statement. Format: MySQL Source
Code Documentation, "COM_QUERY". A connection that has negotiated attributes sends them with every
COM_QUERY, even if there are none.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, overload
from urllib.parse import quote

from qjoule_drivers.context import EMPTY, TagSet, active_tags

keys_in_statements: set[str] = set()
_comments: dict[TagSet, str] = {}
_MAX_MADE = 4096


def put_in_statements(keys: Iterable[str]) -> None:
    """From now on tags with these keys also go into statements."""
    chosen_keys = set(keys)
    keys_in_statements.clear()
    keys_in_statements.update(chosen_keys)
    _comments.clear()


def chosen() -> dict[str, str]:
    """The current tags that go into statements."""
    return active_tags().select(keys_in_statements) if keys_in_statements else {}


@overload
def commented(statement: str) -> str: ...
@overload
def commented(statement: bytes) -> bytes: ...
def commented(statement: Any) -> Any:
    """The statement with a comment. Unchanged if there are no tags, if it already has a comment, or
    if it is neither text nor bytes.

    >>> put_in_statements({"endpoint"})
    >>> with tag(endpoint="a b"): commented("SELECT 1;")
    "SELECT 1/*endpoint='a%20b'*/;"
    """
    if not keys_in_statements:
        return statement
    tags = active_tags()
    if tags is EMPTY:
        return statement
    comment = _comments.get(tags)
    if comment is None:
        comment = _make_comment(tags)
    if not comment:
        return statement
    if isinstance(statement, str):
        return _append_comment(statement, comment, "*/", ";")
    if isinstance(statement, (bytes, bytearray)):
        return _append_comment(bytes(statement), comment.encode("ascii"), b"*/", b";")
    return statement


def comment_of(tags: dict[str, str]) -> str:
    """`/*…*/` for these tags; empty if there are none."""
    pairs = pairs_of(tags)
    return f"/*{pairs}*/" if pairs else ""


def pairs_of(tags: dict[str, str]) -> str:
    """`key='value',key2='value2'`, encoded and sorted."""
    return ",".join(
        f"{quote(key, safe='')}='{quote(value, safe='')}'" for key, value in sorted(tags.items())
    )


def _make_comment(tags: TagSet) -> str:
    if len(_comments) >= _MAX_MADE:
        _comments.clear()
    comment = _comments[tags] = comment_of(tags.select(keys_in_statements))
    return comment


def _append_comment(statement: Any, comment: Any, mark: Any, semicolon: Any) -> Any:
    """Puts the comment before a final semicolon: text after it would be another statement."""
    if mark in statement:
        return statement
    body = statement.rstrip()
    if body.endswith(semicolon):
        return body[:-1] + comment + semicolon
    return body + comment


_keys: frozenset[str] = frozenset()


def put_in_connections(keys: Iterable[str]) -> None:
    """From now on new connections send tags with these keys."""
    global _keys  # noqa: PLW0603
    _keys = frozenset(keys)


def connection_tags() -> dict[str, str]:
    """The current tags that a new connection sends."""
    return active_tags().select(_keys) if _keys else {}


def connection_name(longest: int) -> str:
    """`key=value,key2=value2`, encoded as in comments: as many pairs as fit into `longest`
    characters.

    Empty without tags.
    """
    name = ""
    for key, value in connection_tags().items():
        pair = f"{quote(key, safe='')}={quote(value, safe='')}"
        longer = f"{name},{pair}" if name else pair
        if len(longer) <= longest:
            name = longer
    return name


#: CLIENT_QUERY_ATTRIBUTES, a capability flag that server and client both send.
CAPABILITY = 1 << 27
PREFIX = "qjoule."  #: of attribute names; avoids clashes with the application's own
NONE = b"\x00\x01"  #: zero attributes, in one set
_STRING = b"\xfe\x00"  #: MYSQL_TYPE_STRING without flags


def attributes(encoding: str) -> bytes:
    """Returns the attributes that precede a statement, in the connection's `encoding`."""
    tags = chosen()
    return _encoded(tuple(tags.items()), encoding) if tags else NONE


@lru_cache(maxsize=4096)
def _encoded(tags: tuple[tuple[str, str], ...], encoding: str) -> bytes:
    count = len(tags)
    no_nulls = bytes((count + 7) // 8)
    names = b"".join(_STRING + _length_encoded(f"{PREFIX}{key}".encode("ascii")) for key, _ in tags)
    values = b"".join(_length_encoded(value.encode(encoding, "replace")) for _, value in tags)
    return bytes([count, 1]) + no_nulls + b"\x01" + names + values


def _length_encoded(data: bytes) -> bytes:
    """The data preceded by its length ("Protocol::LengthEncodedInteger")."""
    size = len(data)
    if size < 0xFB:
        return bytes([size]) + data
    return b"\xfc" + size.to_bytes(2, "little") + data
