# SPDX-License-Identifier: Apache-2.0
"""Asks a mongod for the users and applications of its connections: $currentOp.

The user needs the privilege `inprog` (the role clusterMonitor has it), and is defined in the
database admin. Each connection is reported twice: by its client's address, and by the name of its
thread, which the server calls `desc` (`conn5`). The attach mode `symbol` knows no address.

MongoDB Manual, "$currentOp (aggregation stage)".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

import pymongo

from qjoule.servers.client import (
    ANSWER_S,
    CONNECTIONS_MAX,
    Account,
    NamedConnection,
    by_address,
    by_name,
)

_STAGE = {"allUsers": True, "idleConnections": True, "idleSessions": False, "localOps": True}
_FIELDS = dict.fromkeys(("client", "desc", "appName", "effectiveUsers.user"), 1)
_THREAD = re.compile(r"conn[0-9]{1,11}")
_ANSWER_MS = ANSWER_S * 1000


class Connections:
    """A `NamesSource`."""

    unseen = ""

    def __init__(self, account: Account, port: int) -> None:
        self._connection: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(
            account.host,
            port,
            username=account.user or None,
            password=account.password or None,
            directConnection=True,
            serverSelectionTimeoutMS=_ANSWER_MS,
            connectTimeoutMS=_ANSWER_MS,
            socketTimeoutMS=_ANSWER_MS,
            maxPoolSize=1,
            retryReads=False,
        )

    def names(self) -> Iterator[NamedConnection]:
        pipeline: list[dict[str, Any]] = [{"$currentOp": _STAGE}, {"$project": _FIELDS}]
        with self._connection.admin.aggregate(pipeline) as answer:
            yield from named_connections(islice(answer, CONNECTIONS_MAX))

    def close(self) -> None:
        self._connection.close()


def named_connections(operations: Iterable[Mapping[str, Any]]) -> Iterator[NamedConnection]:
    """Yields the connections that have a user or an application."""
    for operation in operations:
        user, application = _user(operation), _text(operation.get("appName"))
        if not user and not application:
            continue
        address, _, port = _text(operation.get("client")).rpartition(":")
        with suppress(ValueError):  # a unix socket
            yield NamedConnection(by_address(address.strip("[]"), int(port)), user, application)
        thread = _text(operation.get("desc"))
        if _THREAD.fullmatch(thread):
            yield NamedConnection(by_name(thread), user, application)


def _user(operation: Mapping[str, Any]) -> str:
    """Returns the first user as whom the client has logged in."""
    users = operation.get("effectiveUsers")
    first = users[0] if isinstance(users, list) and users else None
    return _text(first.get("user")) if isinstance(first, Mapping) else ""


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
