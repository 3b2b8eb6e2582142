# SPDX-License-Identifier: Apache-2.0
"""go-ycsb's driver of MySQL and MariaDB."""

from __future__ import annotations

from collections.abc import Mapping

from qjoule.studies.workload import Target
from qjoule.studies.ycsb.goycsb.driver import Driver
from qjoule.studies.ycsb.store import DATABASE


def _properties(target: Target, _threads: int) -> Mapping[str, object]:
    return {
        "mysql.host": target.host,
        "mysql.port": target.port,
        "mysql.user": target.user,
        "mysql.password": target.password,
        "mysql.db": target.database or DATABASE,
    }


DRIVER = Driver("mysql", _properties)
