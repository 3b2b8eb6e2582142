"""YCSB's table on each server."""

from __future__ import annotations

import importlib

from qjoule.errors import QjouleError
from qjoule.studies.workload import Target
from qjoule.studies.ycsb.store import Store

#: Module and class by flavour.
_STORES = {
    "mariadb": ("sql", "MySqlStore"),
    "mysql": ("sql", "MySqlStore"),
    "postgres": ("sql", "PostgresStore"),
    "redis": ("redis", "RedisStore"),
    "mongodb": ("mongodb", "MongodbStore"),
    "cassandra": ("cassandra", "CassandraStore"),
    "voltdb": ("voltdb", "VoltdbStore"),
}
FLAVOURS = frozenset(_STORES)


def open_store(target: Target) -> Store:
    """Raises QjouleError: the driver is not installed, or the server does not answer."""
    module, name = _STORES[target.flavour]
    try:
        found = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    except ModuleNotFoundError as error:
        raise QjouleError(f"{error.name} is missing: pip install 'qjoule[bench]'") from error
    try:
        store: Store = found(target)
    except (*found.errors, OSError) as error:
        raise QjouleError(
            f"{target.flavour} at {target.host}:{target.port} does not answer: {error}"
        ) from error
    return store
