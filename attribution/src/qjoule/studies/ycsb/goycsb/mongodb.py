# SPDX-License-Identifier: Apache-2.0
"""go-ycsb's driver of MongoDB."""

from __future__ import annotations

from collections.abc import Mapping

from qjoule.studies.workload import Target
from qjoule.studies.ycsb.goycsb.driver import Driver
from qjoule.studies.ycsb.store import DATABASE


def _properties(target: Target, _threads: int) -> Mapping[str, object]:
    login = {"mongodb.username": target.user, "mongodb.password": target.password}
    where = f"mongodb://{target.host}:{target.port}/{DATABASE}?w=1"
    return {"mongodb.url": where, **(login if target.user else {})}


DRIVER = Driver(
    "mongodb",
    _properties,
    databases=frozenset({DATABASE}),
    other_database=f"go-ycsb knows no other MongoDB database than {DATABASE}",
)
