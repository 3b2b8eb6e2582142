# SPDX-License-Identifier: Apache-2.0
"""Tags in a comment inside the statement, for servers on other hosts. Opt-in, for named keys only.

Format: sqlcommenter (https://google.github.io/sqlcommenter/spec/): `/*key='value',key2='value2'*/`
at the end, keys and values percent-encoded and sorted. Percent-encoding leaves only letters, digits
and `-_.~`, so no value can end the comment or its string. Each different value makes a different
statement text for statement caches, so name keys with few values.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, overload
from urllib.parse import quote

from qjoule_drivers.context import EMPTY, TagSet, in_force

keys_in_statements: set[str] = set()
_made: dict[TagSet, str] = {}
_MAX_MADE = 4096


def put_in_statements(keys: Iterable[str]) -> None:
    """From now on the tags of these keys also go into statements. No keys: no tags do."""
    named = set(keys)
    keys_in_statements.clear()
    keys_in_statements.update(named)
    _made.clear()


def chosen() -> dict[str, str]:
    """The current tags that go into statements."""
    return in_force().those(keys_in_statements) if keys_in_statements else {}


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
    tags = in_force()
    if tags is EMPTY:
        return statement
    comment = _made.get(tags)
    if comment is None:
        comment = _remember(tags)
    if not comment:
        return statement
    if isinstance(statement, str):
        return _placed(statement, comment, "*/", ";")
    if isinstance(statement, (bytes, bytearray)):
        return _placed(bytes(statement), comment.encode("ascii"), b"*/", b";")
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


def _remember(tags: TagSet) -> str:
    if len(_made) >= _MAX_MADE:
        _made.clear()
    comment = _made[tags] = comment_of(tags.those(keys_in_statements))
    return comment


def _placed(statement: Any, comment: Any, mark: Any, semicolon: Any) -> Any:
    """Puts the comment before a final semicolon: text after it would be another statement."""
    if mark in statement:
        return statement
    body = statement.rstrip()
    if body.endswith(semicolon):
        return body[:-1] + comment + semicolon
    return body + comment
