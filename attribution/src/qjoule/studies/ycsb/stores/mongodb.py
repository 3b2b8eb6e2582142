# SPDX-License-Identifier: Apache-2.0
"""MongoDB, and what speaks its protocol: a document for each record, values as go-ycsb has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pymongo
import pymongo.errors

from qjoule.studies.connect.mongodb import connect_mongodb
from qjoule.studies.workload import Target
from qjoule.studies.ycsb.records import Record
from qjoule.studies.ycsb.store import DATABASE, MARK, TABLE

_LONGEST_S = 60.0


def _document(key: str, values: Sequence[str]) -> dict[str, Any]:
    return {"_id": key, **{f"field{i}": value.encode() for i, value in enumerate(values)}}


class MongodbConnection:
    """A client of its own, for its own connection."""

    def __init__(self, client: pymongo.MongoClient[dict[str, Any]], database: str) -> None:
        self._client = client
        self._table = client[database][TABLE]

    def read(self, key: str) -> bool:
        return self._table.find_one({"_id": key}) is not None

    def update(self, key: str, field: int, value: str) -> bool:
        written = {"$set": {f"field{field}": value.encode()}}
        return self._table.update_one({"_id": key}, written).matched_count == 1

    def insert(self, key: str, values: Sequence[str]) -> bool:
        self._table.insert_one(_document(key, values))
        return True

    def scan(self, key: str, count: int) -> bool:
        found = self._table.find({"_id": {"$gte": key}}).sort("_id", 1).limit(count)
        return len(list(found)) > 0

    def close(self) -> None:
        self._client.close()


class MongodbStore:
    """mongod, FerretDB."""

    errors = (pymongo.errors.PyMongoError,)

    def __init__(self, target: Target) -> None:
        self._target = target
        self._name = target.database or DATABASE
        self._client = connect_mongodb(self._target, _LONGEST_S)
        self._database = self._client[self._name]
        self._client.admin.command("ping")

    def connect(self, fields: int) -> MongodbConnection:  # noqa: ARG002
        return MongodbConnection(connect_mongodb(self._target, _LONGEST_S), self._name)

    def mark(self) -> str:
        found = self._database[MARK].find_one({"_id": "mark"})
        return str(found["mark"]) if found else ""

    def reset(self, fields: int, field_bytes: int) -> None:  # noqa: ARG002
        self._database[MARK].drop()
        self._database[TABLE].drop()

    def load(self, records: Sequence[Record]) -> None:
        self._database[TABLE].insert_many(
            [_document(key, values) for key, values in records], ordered=False
        )

    def set_mark(self, mark: str) -> None:
        self._database[MARK].insert_one({"_id": "mark", "mark": mark})

    def count(self) -> int:
        return self._database[TABLE].count_documents({})

    def remove(self, keys: Sequence[str]) -> None:
        self._database[TABLE].delete_many({"_id": {"$in": list(keys)}})

    def close(self) -> None:
        self._client.close()


STORE = MongodbStore
