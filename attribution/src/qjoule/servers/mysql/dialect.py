# SPDX-License-Identifier: Apache-2.0
"""Statements of MySQL and MariaDB.

Lexical rules: MySQL sql/sql_lex.cc (lex_one_token), by the session's sql_mode and character set.
"""

from __future__ import annotations

import re
from functools import partial

from qjoule.servers.decoding_types import DatabaseChange, Language
from qjoule.servers.mysql.other_tools import ids_of
from qjoule.shapes.lexis import Lexis
from qjoule.shapes.sql import sql_shape
from qjoule.shapes.summary import sql_summary

LEXIS = Lexis.BACKTICK

#: `USE`, alone or among several statements sent as one.
_USE = re.compile(r"(?:^|; *)use (.*)", re.IGNORECASE)
_NAME = re.compile(r"`((?:[^`]|``)+)` *;?|([^\s`;?]+) *;?")


def database_change(shape_text: str) -> DatabaseChange | None:
    """The database of a `USE`. Its name is None if more than the statement's end follows it."""
    used = _USE.search(shape_text)
    if used is None:
        return None
    found = _NAME.fullmatch(used[1].strip())
    if found is None:
        return DatabaseChange(None)
    return DatabaseChange(found[2] or found[1].replace("``", "`"))


LANGUAGE = Language(
    shape=partial(sql_shape, lexis=LEXIS),
    summary=partial(sql_summary, lexis=LEXIS),
    database=database_change,
    lexis=LEXIS,
    follows_rules=True,
    ids=ids_of,
)
