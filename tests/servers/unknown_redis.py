"""A Redis that nothing tells for one: a server of its own protocol, as far as qjoule knows."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from servers.process import DatabaseServer, Unavailable, free_port, running, server_directory
from servers.redis import connect_redis

NAME = "kvd"
_BANNER, _OTHER = b"Redis version=%s, bits=%d", b"Kvdis version=%s, bits=%d"


@contextmanager
def unknown_redis() -> Iterator[DatabaseServer]:
    """redis-server under another name, without the words that it is known by.

    Raises:
        Unavailable: it is not installed.
    """
    installed = shutil.which("redis-server")
    if installed is None:
        raise Unavailable("redis-server is not installed (package redis-server)")
    with server_directory() as directory:
        program = directory / NAME
        program.write_bytes(Path(installed).read_bytes().replace(_BANNER, _OTHER))
        program.chmod(0o755)
        port, socket = free_port(), directory / "s"
        argv = [
            str(program),
            *("--bind", "127.0.0.1", "--port", str(port), "--unixsocket", str(socket)),
            *("--dir", str(directory), "--save", ""),
        ]
        with running(DatabaseServer(NAME, directory, argv, port, socket, connect_redis)) as started:
            yield started
