# SPDX-License-Identifier: Apache-2.0
"""Redis: a hash for each record, and a sorted set of their keys for scans, as YCSB keeps one.

Keys are `qjoule_ycsb/user…`, which is what go-ycsb makes of this table's name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import redis

from qjoule.studies.connect.redis import connect_redis
from qjoule.studies.workload import Target
from qjoule.studies.ycsb.records import BATCH, Record
from qjoule.studies.ycsb.store import MARK, TABLE

INDEX = "qjoule_ycsb_index"


def _hash(values: Sequence[str]) -> dict[str, str]:
    return {f"field{field}": value for field, value in enumerate(values)}


class RedisConnection:
    """A client of one connection."""

    def __init__(self, client: redis.Redis) -> None:
        self._client: Any = client

    def read(self, key: str) -> bool:
        return bool(self._client.hgetall(f"{TABLE}/{key}"))

    def update(self, key: str, field: int, value: str) -> bool:
        self._client.hset(f"{TABLE}/{key}", f"field{field}", value)
        return True

    def insert(self, key: str, values: Sequence[str]) -> bool:
        both = self._client.pipeline(transaction=False)
        both.hset(f"{TABLE}/{key}", mapping=_hash(values))
        both.zadd(INDEX, {key: 0})
        both.execute()
        return True

    def scan(self, key: str, count: int) -> bool:
        found = self._client.zrangebylex(INDEX, f"[{key}", "+", 0, count)
        all_of = self._client.pipeline(transaction=False)
        for one in found:
            all_of.hgetall(f"{TABLE}/{one.decode()}")
        return all(all_of.execute()) and bool(found)

    def close(self) -> None:
        self._client.close()


class RedisStore:
    """Redis."""

    errors = (redis.RedisError, OSError)

    def __init__(self, target: Target) -> None:
        self._target = target
        self._own: Any = connect_redis(self._target)

    def connect(self, fields: int) -> RedisConnection:  # noqa: ARG002
        return RedisConnection(connect_redis(self._target))

    def mark(self) -> str:
        return (self._own.get(MARK) or b"").decode()

    def reset(self, fields: int, field_bytes: int) -> None:  # noqa: ARG002
        self._own.delete(MARK, INDEX)
        names: list[bytes] = []
        for name in self._names():
            names.append(name)
            if len(names) == BATCH:
                self._own.unlink(*names)
                names = []
        if names:
            self._own.unlink(*names)

    def load(self, records: Sequence[Record]) -> None:
        pipe = self._own.pipeline(transaction=False)
        for key, values in records:
            pipe.hset(f"{TABLE}/{key}", mapping=_hash(values))
        pipe.zadd(INDEX, {key: 0 for key, _ in records})
        pipe.execute()

    def set_mark(self, mark: str) -> None:
        self._own.set(MARK, mark)

    def count(self) -> int:
        return len(set(self._names()))  # SCAN may give a key twice

    def remove(self, keys: Sequence[str]) -> None:
        self._own.unlink(*[f"{TABLE}/{key}" for key in keys])
        self._own.zrem(INDEX, *keys)

    def close(self) -> None:
        self._own.close()

    def _names(self) -> Iterator[bytes]:
        yield from self._own.scan_iter(f"{TABLE}/*", count=BATCH)


STORE = RedisStore
