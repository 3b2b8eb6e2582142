# SPDX-License-Identifier: Apache-2.0
"""Statements of PostgreSQL.

Lexical rules: PostgreSQL src/backend/parser/scan.l, by the session's standard_conforming_strings.
"""

from __future__ import annotations

from functools import partial

from qjoule.servers.decoding_types import Language
from qjoule.servers.postgres.other_tools import ids_of
from qjoule.shapes.lexis import Lexis
from qjoule.shapes.sql import sql_shape
from qjoule.shapes.summary import sql_summary

LANGUAGE = Language(
    shape=partial(sql_shape, lexis=Lexis.STANDARD),
    summary=partial(sql_summary, lexis=Lexis.STANDARD),
    lexis=Lexis.STANDARD,
    follows_rules=True,
    ids=ids_of,
)
