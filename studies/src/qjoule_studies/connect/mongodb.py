# SPDX-License-Identifier: Apache-2.0
"""MongoDB and what speaks its protocol, by pymongo."""

from __future__ import annotations

from typing import Any

import pymongo

from qjoule_studies.workload import Target

CONNECT_S = 10


def connect_mongodb(target: Target, longest_s: float) -> pymongo.MongoClient[dict[str, Any]]:
    """A client of one connection, made at its first command; none takes longer than `longest_s`.

    Its commands raise pymongo.errors.PyMongoError.
    """
    login: dict[str, Any] = {}
    if target.user:
        login = {"username": target.user, "password": target.password}
    return pymongo.MongoClient(
        target.host,
        target.port,
        serverSelectionTimeoutMS=CONNECT_S * 1_000,
        socketTimeoutMS=int(longest_s * 1_000),
        directConnection=True,
        maxPoolSize=1,
        **login,
    )
