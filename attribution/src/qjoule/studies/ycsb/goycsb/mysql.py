# SPDX-License-Identifier: Apache-2.0
"""go-ycsb's driver of MySQL and MariaDB."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

import pymysql

from qjoule.studies.connect.mysql import connect_mysql
from qjoule.studies.workload import Target
from qjoule.studies.ycsb.goycsb.driver import DATABASE, TABLE, Driver


def _properties(target: Target, _threads: int) -> Mapping[str, object]:
    return {
        "mysql.host": target.host,
        "mysql.port": target.port,
        "mysql.user": target.user,
        "mysql.password": target.password,
        "mysql.db": target.database or DATABASE,
    }


def _execute(target: Target, statement: str) -> None:
    with closing(connect_mysql(target, DATABASE)) as connection, connection.cursor() as cursor:
        cursor.execute(statement)


DRIVER = Driver(
    "mysql",
    _properties,
    lambda target: _execute(target, f"DROP TABLE IF EXISTS {TABLE}"),
    (pymysql.Error,),
    loaded=lambda target: _execute(target, f"ANALYZE TABLE {TABLE}"),
)
