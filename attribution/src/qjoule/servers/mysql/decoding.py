# SPDX-License-Identifier: Apache-2.0
"""Decodes MySQL's and MariaDB's data."""

from __future__ import annotations

import re
from functools import partial

from qjoule.servers.decoding_types import (
    CAUSED_BY_READS,
    CAUSED_BY_WRITES,
    SERVES_QUERIES,
    DatabaseChange,
    Decoding,
    Language,
)
from qjoule.servers.mysql.other_tools import ids_of
from qjoule.servers.mysql.startup import change_user, login, program_name
from qjoule.servers.mysql.tags import tags_in_attributes
from qjoule.servers.mysql.unseen import NAMES, TEXTS
from qjoule.servers.registry import dialect
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


DECODING = Decoding(
    languages={dialect("mysql"): LANGUAGE},
    tag_readers={dialect("attributes"): tags_in_attributes},
    startup=login,
    change=change_user,
    application=program_name,
    texts_by_id=TEXTS,
    names_before=NAMES,
    causes={
        "ib_srv_purge": CAUSED_BY_WRITES,  # removes row versions that UPDATE and DELETE left ...
        "ib_srv_wkr": CAUSED_BY_WRITES,  # ... with these
        "ib_pg_flush": CAUSED_BY_WRITES,  # MySQL's page cleaners
        "page_cleaner": CAUSED_BY_WRITES,  # MariaDB's
        "checkpoint_bg": CAUSED_BY_WRITES,
        "ib_io_wr": CAUSED_BY_WRITES,
        "ib_log_": CAUSED_BY_WRITES,
        "ib_io_rd": CAUSED_BY_READS,  # read-ahead
        "ib_tpool_worker": SERVES_QUERIES,  # MariaDB: reads, writes and purge by turns
    },
)
