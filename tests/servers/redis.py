"""Redis from the distribution (`redis-server`)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis

from servers.process import DatabaseServer, Unavailable, free_port, running, server_directory


@contextmanager
def redis_server(*options: str) -> Iterator[DatabaseServer]:
    """A Redis with these further options, which writes nothing to disk by itself.

    Raises:
        Unavailable: it is not installed.
    """
    server = shutil.which("redis-server")
    if server is None:
        raise Unavailable("redis-server is not installed (package redis-server)")
    with server_directory() as directory:
        port, socket = free_port(), directory / "s"
        argv = [
            server,
            *("--bind", "127.0.0.1"),
            *("--port", str(port)),
            *("--unixsocket", str(socket)),
            *("--dir", str(directory)),
            *("--save", ""),
            *options,
        ]
        with running(
            DatabaseServer("redis", directory, argv, port, socket, connect_redis)
        ) as started:
            yield started


def connect_redis(server: DatabaseServer, tcp: bool, arguments: dict[str, Any]) -> redis.Redis:
    """A client of one connection, which has been greeted and has answered one PING."""
    where: dict[str, Any] = (
        {"host": "127.0.0.1", "port": server.port}
        if tcp
        else {"unix_socket_path": str(server.socket)}
    )
    defaults: dict[str, Any] = {"protocol": 2, "single_connection_client": True}
    client = redis.Redis(**{**where, **defaults, **arguments})
    client.ping()
    return client


def command_stats(client: redis.Redis) -> dict[str, dict[str, float]]:
    """`INFO commandstats`: calls, usec, ... by command, `get` or `config|set`."""
    stats: dict[str, dict[str, float]] = client.info("commandstats")
    return {name.removeprefix("cmdstat_"): row for name, row in stats.items()}
