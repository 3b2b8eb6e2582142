# SPDX-License-Identifier: Apache-2.0
"""Redis from the distribution (`redis-server`)."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from qjoule_studies.servers.prerequisites import Account, Unavailable, own_account, service_account
from qjoule_studies.servers.process import (
    DatabaseServer,
    Settings,
    free_port,
    running,
    server_directory,
    target,
    text,
)
from qjoule_studies.workload import Target


@contextmanager
def redis_server(
    *options: str, account: Account | None = None, password: str = ""
) -> Iterator[DatabaseServer]:
    """A Redis with these further options, which writes nothing to disk by itself.

    Args:
        account: whom it runs as; ourselves unless given.
        password: of its user `default`; without one, whoever reaches the server is let in.

    Raises:
        Unavailable: it is not installed.
    """
    program, account = installed_redis(), account or own_account()
    with server_directory() as directory:
        account.own(directory)
        if not password:
            with redis_in(directory, program, *options, account=account) as started:
                yield started
            return
        secrets = directory / "redis.conf"
        account.write(secrets, f"requirepass {password}\n")
        connect = partial(_connect_with, password)
        arguments = (str(secrets), *options)
        with redis_in(directory, program, *arguments, account=account, connect=connect) as started:
            yield started


def installed_redis() -> Path:
    """The executable of the Redis that is installed. Raises Unavailable."""
    server = shutil.which("redis-server")
    if server is None:
        raise Unavailable("redis-server is not installed (package redis-server)")
    return Path(server)


@contextmanager
def redis_in(
    directory: Path,
    program: Path,
    *options: str,
    name: str = "redis",
    account: Account | None = None,
    connect: Callable[[DatabaseServer, bool, dict[str, Any]], redis.Redis] | None = None,
) -> Iterator[DatabaseServer]:
    """This executable of a Redis, in this directory; a file of settings is the first option."""
    port, socket = free_port(), directory / "s"
    file = options[:1] if options and not options[0].startswith("--") else ()
    argv = [
        str(program),
        *file,
        *("--bind", "127.0.0.1"),
        *("--port", str(port)),
        *("--unixsocket", str(socket)),
        *("--dir", str(directory)),
        *("--save", ""),
        *options[len(file) :],
    ]
    identity = (account or own_account()).identity
    server = DatabaseServer(name, directory, argv, port, socket, connect or connect_redis, identity)
    with running(server) as started:
        yield started


def _connect_with(
    password: str, server: DatabaseServer, tcp: bool, arguments: dict[str, Any]
) -> redis.Redis:
    return connect_redis(server, tcp, {"password": password, **arguments})


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


OURS = frozenset(
    [
        "aclfile",
        "bind",
        "daemonize",
        "dir",
        "include",
        "pidfile",
        "port",
        "protected-mode",
        "requirepass",
        "supervised",
        "unixsocket",
        "user",
    ]
)


@contextmanager
def _redis(settings: Settings) -> Iterator[Target]:
    """Redis, which writes nothing to disk unless `save` or `appendonly` is set."""
    password = secrets.token_hex(16)
    arguments = [
        argument
        for name, value in settings.items()
        for argument in (f"--{name}", text(value, "yes", "no"))
    ]
    account = service_account("redis")
    with redis_server(*arguments, account=account, password=password) as server:
        yield target("redis", server, "", password)


STARTS = {"redis": _redis}


def connect_target(target: Target, **options: Any) -> Any:
    """A client of one connection, which has answered. Raises redis.RedisError, OSError."""
    client = redis.Redis(
        host=target.host,
        port=target.port,
        db=int(target.database) if target.database.isdigit() else 0,
        username=target.user or None,
        password=target.password or None,
        protocol=2,
        single_connection_client=True,
        retry=Retry(NoBackoff(), 0),  # failures must be counted, not hidden
        **options,
    )
    client.ping()
    return client
