# SPDX-License-Identifier: Apache-2.0
"""go-ycsb's driver of PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

import psycopg

from qjoule.studies.connect.postgres import connect_postgres
from qjoule.studies.workload import Target
from qjoule.studies.ycsb.goycsb.driver import DATABASE, TABLE, Driver


def _properties(target: Target, _threads: int) -> Mapping[str, object]:
    return {
        "pg.host": target.host,
        "pg.port": target.port,
        "pg.user": target.user,
        "pg.password": target.password,
        "pg.db": target.database or DATABASE,
    }


def _execute(target: Target, statement: str) -> None:
    with closing(connect_postgres(target, DATABASE)) as connection:
        connection.execute(statement)


DRIVER = Driver(
    "pg",
    _properties,
    lambda target: _execute(target, f"DROP TABLE IF EXISTS {TABLE}"),
    (psycopg.Error,),
    loaded=lambda target: _execute(target, f"VACUUM ANALYZE {TABLE}"),
)
