# SPDX-License-Identifier: Apache-2.0
"""Decodes PostgreSQL's data."""

from __future__ import annotations

from functools import partial

from qjoule.servers.decoding_types import (
    CAUSED_BY_READS,
    CAUSED_BY_WRITES,
    Decoding,
    Language,
    Titles,
)
from qjoule.servers.postgres.other_tools import ids_of, query_id
from qjoule.servers.postgres.startup import (
    application_set,
    first_message,
    names_of_title,
    renamed,
)
from qjoule.servers.postgres.titles import WITH_CLIENT, role_of_title, session_of_title
from qjoule.servers.registry import dialect
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


DECODING = Decoding(
    languages={dialect("postgres"): LANGUAGE},
    told_ids={dialect("postgres-query-id"): query_id},
    startup=first_message,
    change=names_of_title,
    application_set=application_set,
    application=renamed,
    causes={
        "io worker": CAUSED_BY_READS,  # what it does between two requests
        "walwriter": CAUSED_BY_WRITES,
        "bgwriter": CAUSED_BY_WRITES,
        "checkpointer": CAUSED_BY_WRITES,
        "autovac worker": CAUSED_BY_WRITES,  # removes row versions that UPDATE and DELETE left
    },
    titles=Titles(role_of_title, session_of_title, WITH_CLIENT),
)
