# SPDX-License-Identifier: Apache-2.0
"""Asks a Redis or Valkey for the names of its connections: CLIENT LIST.

The user needs the right `+client|list`. A line of the answer is `id=3 addr=127.0.0.1:4711 …
name=app …`. Names hold no blank (clientSetNameOrReply(), networking.c), so no client can forge a
field.
"""

from __future__ import annotations

from collections.abc import Iterator

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from qjoule.servers.client import ANSWER_S, CONNECTIONS_MAX, Account, NamedConnection, by_address


class Connections:
    """A `NamesSource`."""

    unseen = ""

    def __init__(self, account: Account, port: int) -> None:
        self._connection = redis.Redis(
            host=account.host,
            port=port,
            username=account.user or None,
            password=account.password or None,
            socket_connect_timeout=ANSWER_S,
            socket_timeout=ANSWER_S,
            retry=Retry(NoBackoff(), 0),  # ten retries are the default, even for a wrong password
            single_connection_client=True,
        )
        self._connection.ping()

    def names(self) -> Iterator[NamedConnection]:
        self._connection.set_response_callback("CLIENT LIST", lambda answer, **_: answer)
        answer = self._connection.execute_command("CLIENT LIST")  # type: ignore[no-untyped-call]
        text = answer if isinstance(answer, bytes) else str(answer).encode()
        return named_connections(text.decode("utf-8", "replace"))

    def close(self) -> None:
        self._connection.close()


def named_connections(answer: str) -> Iterator[NamedConnection]:
    """Yields the connections in an answer that have a name and an address."""
    for line in answer.split("\n", CONNECTIONS_MAX)[:CONNECTIONS_MAX]:
        fields = dict(word.partition("=")[::2] for word in line.split(" "))
        address, _, port = fields.get("addr", "").rpartition(":")
        name = fields.get("name", "")
        try:
            if name:
                yield NamedConnection(by_address(address.strip("[]"), int(port)), "", name)
        except ValueError:  # a unix socket's path
            continue
