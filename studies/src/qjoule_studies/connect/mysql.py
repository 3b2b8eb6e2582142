# SPDX-License-Identifier: Apache-2.0
"""MariaDB and MySQL, by pymysql."""

from __future__ import annotations

from typing import Any

import pymysql
from pymysql.constants import CLIENT

from qjoule_studies.workload import Target

CONNECT_S = 10


def connect_mysql(target: Target, own: str) -> pymysql.Connection[Any]:
    """In autocommit, in the target's database or in `own`. Raises pymysql.Error."""
    connection = pymysql.connect(
        host=target.host,
        port=target.port,
        user=target.user,
        password=target.password,
        charset="utf8mb4",
        autocommit=True,
        connect_timeout=CONNECT_S,
        client_flag=CLIENT.FOUND_ROWS,  # an update with the same value has found its row
    )
    name = (target.database or own).replace("`", "``")
    with connection.cursor() as cursor:
        if not target.database:
            cursor.execute(f"CREATE DATABASE IF NOT EXISTS `{name}` CHARACTER SET utf8mb4")
        cursor.execute(f"USE `{name}`")
    return connection
