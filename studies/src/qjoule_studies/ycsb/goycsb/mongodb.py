# SPDX-License-Identifier: Apache-2.0
"""go-ycsb's driver of MongoDB."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

import pymongo.errors

from qjoule_studies.servers.mongodb import connect_target
from qjoule_studies.workload import Target
from qjoule_studies.ycsb.goycsb.driver import DATABASE, TABLE, Driver

_LONGEST_S = 60.0


def _properties(target: Target, _threads: int) -> Mapping[str, object]:
    login = {"mongodb.username": target.user, "mongodb.password": target.password}
    where = f"mongodb://{target.host}:{target.port}/{DATABASE}?w=1"
    return {"mongodb.url": where, **(login if target.user else {})}


def _empty(target: Target) -> None:
    with closing(connect_target(target, _LONGEST_S)) as client:
        client[DATABASE][TABLE].drop()


DRIVER = Driver(
    "mongodb",
    _properties,
    _empty,
    (pymongo.errors.PyMongoError,),
    databases=frozenset({DATABASE}),
    other_database=f"go-ycsb knows no other MongoDB database than {DATABASE}",
)
