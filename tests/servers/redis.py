"""Redis from the distribution (`redis-server`)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from servers.process import DatabaseServer, Unavailable, free_port, running, server_directory


@contextmanager
def redis_server(*options: str) -> Iterator[DatabaseServer]:
    """A Redis with these further options, which writes nothing to disk by itself.

    Raises:
        Unavailable: it is not installed.
    """
    program = installed_redis()
    with server_directory() as directory, redis_in(directory, program, *options) as started:
        yield started


def installed_redis() -> Path:
    """Its executable. Raises Unavailable."""
    server = shutil.which("redis-server")
    if server is None:
        raise Unavailable("redis-server is not installed (package redis-server)")
    return Path(server)


@contextmanager
def redis_in(
    directory: Path, program: Path, *options: str, name: str = "redis"
) -> Iterator[DatabaseServer]:
    """This executable of a Redis, in this directory."""
    port, socket = free_port(), directory / "s"
    argv = [
        str(program),
        *("--bind", "127.0.0.1"),
        *("--port", str(port)),
        *("--unixsocket", str(socket)),
        *("--dir", str(directory)),
        *("--save", ""),
        *options,
    ]
    with running(DatabaseServer(name, directory, argv, port, socket, connect_redis)) as started:
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
