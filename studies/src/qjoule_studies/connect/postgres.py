# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL, by psycopg."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import psycopg

from qjoule_studies.workload import Target

CONNECT_S = 10


def connect_postgres(target: Target, own: str) -> psycopg.Connection[Any]:
    """In autocommit, in the target's database or in `own`. Raises psycopg.Error."""

    def to(database: str) -> psycopg.Connection[Any]:
        return psycopg.connect(
            host=target.host,
            port=target.port,
            user=target.user,
            password=target.password,
            dbname=database,
            autocommit=True,
            connect_timeout=CONNECT_S,
        )

    if not target.database:
        with to("postgres") as first, suppress(psycopg.errors.DuplicateDatabase):
            first.execute(f'CREATE DATABASE "{own}"')
    return to(target.database or own)
