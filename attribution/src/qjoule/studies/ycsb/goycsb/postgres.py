# SPDX-License-Identifier: Apache-2.0
"""go-ycsb's driver of PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping

from qjoule.studies.workload import Target
from qjoule.studies.ycsb.goycsb.driver import Driver
from qjoule.studies.ycsb.store import DATABASE


def _properties(target: Target, _threads: int) -> Mapping[str, object]:
    return {
        "pg.host": target.host,
        "pg.port": target.port,
        "pg.user": target.user,
        "pg.password": target.password,
        "pg.db": target.database or DATABASE,
    }


DRIVER = Driver("pg", _properties)
